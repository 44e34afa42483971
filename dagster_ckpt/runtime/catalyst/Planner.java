package dagster_ckpt;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.analysis.CleanupAliases$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.WindowFrame;
import org.apache.spark.sql.catalyst.expressions.WindowFunction;
import org.apache.spark.sql.catalyst.expressions.WindowSpec;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.plans.NormalizePlan;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.planning.PhysicalAggregation;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.rules.RuleExecutor;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.UnsafeRowUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.SchemaUtils$;
import scala.Option;
import scala.Product;
import scala.Some;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** What takes many calls from Python, which cost more than their work, in one. Janino compiles it: no generics. */
public class Planner {
  /** A sequence: of several calls if it is long, because py4j sends each object as an argument. */
  public Seq seq() { return (Seq) Nil$.MODULE$; }
  public Seq seq(Object a) { return of(new Object[] {a}); }
  public Seq seq(Object a, Object b) { return of(new Object[] {a, b}); }
  public Seq seq(Object a, Object b, Object c) { return of(new Object[] {a, b, c}); }
  public Seq seq(Object a, Object b, Object c, Object d) { return of(new Object[] {a, b, c, d}); }
  public Seq seq(Object a, Object b, Object c, Object d, Object e) { return of(new Object[] {a, b, c, d, e}); }
  public Seq seq(Object a, Object b, Object c, Object d, Object e, Object f) {
    return of(new Object[] {a, b, c, d, e, f});
  }
  public Seq seq(Object a, Object b, Object c, Object d, Object e, Object f, Object g) {
    return of(new Object[] {a, b, c, d, e, f, g});
  }
  public Seq seq(Object a, Object b, Object c, Object d, Object e, Object f, Object g, Object h) {
    return of(new Object[] {a, b, c, d, e, f, g, h});
  }

  /** The sequences of a sequence, one after the other. */
  public Seq flat(Seq parts) {
    List all = new ArrayList();
    for (int i = 0; i < parts.size(); i++) {
      Seq part = (Seq) parts.apply(i);
      for (int j = 0; j < part.size(); j++) all.add(part.apply(j));
    }
    return PythonUtils.toSeq(all);
  }

  private Seq of(Object[] items) { return PythonUtils.toSeq(Arrays.asList(items)); }

  /** The plan after the optimizer's batches of these names, each line one, but without these rules. */
  public LogicalPlan rewritten(LogicalPlan plan, Optimizer optimizer, String batches, String skipped) {
    Seq all = optimizer.batches();
    for (int i = 0; i < all.size(); i++) {
      RuleExecutor.Batch batch = (RuleExecutor.Batch) all.apply(i);
      if (!isLine(batch.name(), batches)) continue;
      List rules = new ArrayList();
      for (int j = 0; j < batch.rules().size(); j++) {
        Rule rule = (Rule) batch.rules().apply(j);
        String name = rule.ruleName();
        if (!isLine(name.substring(name.lastIndexOf('.') + 1), skipped)) rules.add(rule);
      }
      for (int round = 0; round < batch.strategy().maxIterations(); round++) {
        LogicalPlan before = plan;
        plan = applied(plan, PythonUtils.toSeq(rules));
        if (plan.fastEquals(before)) break;
      }
    }
    return plan;
  }

  private boolean isLine(String name, String lines) { return ("\n" + lines + "\n").contains("\n" + name + "\n"); }

  /** The plan after these rules, one after the other. */
  public LogicalPlan applied(LogicalPlan plan, Seq rules) {
    for (int i = 0; i < rules.size(); i++) plan = (LogicalPlan) ((Rule) rules.apply(i)).apply(plan);
    return plan;
  }

  /** `value AS name`, under a new id. */
  public Expression alias(Expression value, String name) {
    return new Alias(value, name, NamedExpression$.MODULE$.newExprId(), seq(), Option.empty(), seq());
  }

  /** `value AS name`, under the id of an attribute. */
  public Expression alias(Expression value, String name, NamedExpression attribute) {
    return new Alias(value, name, attribute.exprId(), seq(), new Some(attribute.metadata()), seq());
  }

  /** The value under the name and the id of an attribute. */
  public Expression standingFor(Expression value, NamedExpression attribute) {
    return alias(value, attribute.name(), attribute);
  }

  /** The value with this type. No cast makes a null impossible. */
  public Expression cast(Expression value, DataType type, SQLConf conf) {
    DataType wanted = type.asNullable();
    if (value.dataType().asNullable().equals(wanted)) return value;
    return new Cast(value, wanted, new Some(conf.sessionLocalTimeZone()), EvalMode$.MODULE$.ANSI());
  }

  /** The value with the type of another. */
  public Expression castLike(Expression value, Expression other, SQLConf conf) {
    return cast(value, other.dataType(), conf);
  }

  /** A null with the type of another. */
  public Expression nullLike(Expression other) { return Literal.create(null, other.dataType()); }

  /** The value with its text as it is, to be compared by its bytes. */
  public Expression withoutCollation(Expression value, SQLConf conf) {
    return cast(value, SchemaUtils$.MODULE$.replaceCollatedStringWithString(value.dataType()), conf);
  }

  /** The value as it is if it is that attribute, else under its name and its id. */
  public Expression shown(Expression value, NamedExpression attribute) {
    return value.fastEquals((TreeNode) attribute) ? value : standingFor(value, attribute);
  }

  /** The same plan of others, and the same expression of others. */
  public LogicalPlan on(LogicalPlan node, Seq children) { return (LogicalPlan) node.withNewChildren(children); }
  public Expression of(Expression each, Seq children) { return (Expression) each.withNewChildren(children); }

  /** Whether a plan has the same rows each time. */
  public boolean isDeterministic(LogicalPlan plan) { return plan.deterministic(); }

  /** The rows of a plan with these columns, and with others. */
  public LogicalPlan projected(Seq columns, Seq others, LogicalPlan below) {
    return new Project(flat(seq(columns, others)), below);
  }

  /** The same, with values under these names. */
  public LogicalPlan named(Seq values, String names, Seq others, LogicalPlan below) {
    String[] each = names.split("\u0001", -1);
    List columns = new ArrayList();
    for (int i = 0; i < values.size(); i++) columns.add(alias((Expression) values.apply(i), each[i]));
    return projected(PythonUtils.toSeq(columns), others, below);
  }

  /** The projection without names within its columns: Spark names a group by the text of what it is, with numbers. */
  public LogicalPlan withoutInnerNames(LogicalPlan plan) {
    if (!(plan instanceof Project)) return plan;
    Seq before = ((Project) plan).projectList();
    List columns = new ArrayList();
    for (int i = 0; i < before.size(); i++) {
      columns.add(CleanupAliases$.MODULE$.trimNonTopLevelAliases((Expression) before.apply(i)));
    }
    return new Project(PythonUtils.toSeq(columns), ((Project) plan).child());
  }

  /** The columns of a plan by this name. */
  public Seq columns(LogicalPlan plan, String name) {
    List columns = new ArrayList();
    for (int i = 0; i < plan.output().size(); i++) {
      if (((NamedExpression) plan.output().apply(i)).name().equals(name)) columns.add(plan.output().apply(i));
    }
    return PythonUtils.toSeq(columns);
  }

  /** The rows with their columns, but for others, under the names and ids of attributes; and with those others. */
  public LogicalPlan standing(LogicalPlan rows, Seq others, Seq attributes) {
    List columns = new ArrayList();
    for (int i = 0; i < rows.output().size(); i++) {
      Expression each = (Expression) rows.output().apply(i);
      if (!others.contains(each)) {
        columns.add(standingFor(each, (NamedExpression) attributes.apply(columns.size())));
      }
    }
    return projected(PythonUtils.toSeq(columns), others, rows);
  }

  /** The name of a plan's first node that is a command or a statement; null: it is a query. */
  public String command(LogicalPlan plan) {
    if (plan instanceof Command || plan instanceof ParsedStatement) return plan.nodeName();
    for (int i = 0; i < plan.children().size(); i++) {
      String found = command((LogicalPlan) plan.children().apply(i));
      if (found != null) return found;
    }
    return null;
  }

  /** Nodes and expressions as a text in JSON, and the objects that it numbers. Each type is in it once. */
  public static class Tree {
    private final List objects = new ArrayList();
    private final Map types = new HashMap();
    private final StringBuilder text = new StringBuilder("{\"read\":"), textOfTypes = new StringBuilder();
    private final Planner planner;
    private final boolean whole, replaced, texts;

    Tree(Planner planner, boolean whole, boolean replaced, boolean texts) {
      this.planner = planner;
      this.whole = whole;
      this.replaced = replaced;
      this.texts = texts;
    }

    /** So many characters of the text, from one on. It is gone after the last ones, which are fewer. */
    public String text(int from, int count) {
      String part = text.substring(from, Math.min(text.length(), from + count));
      if (part.length() < count) free(text);
      return part;
    }

    private void free(StringBuilder builder) {
      builder.setLength(0);
      builder.trimToSize();
    }

    public Object at(int number) { return objects.get(number); }

    private Tree close() {
      text.append(",\"types\":[").append(textOfTypes).append("]}");
      types.clear();
      free(textOfTypes);
      return this;
    }

    private void number(Object object, StringBuilder text) {
      text.append("\"at\":").append(objects.size());
      objects.add(object);
    }

    /** A node; `whole`: with those below it, else with SQL of its expressions; `texts`: with Spark's own texts of them. */
    private void node(LogicalPlan node) {
      text.append("{\"node\":").append(quoted(kind(node))).append(",\"streams\":").append(node.isStreaming()).append(',');
      number(node, text);
      text.append(",\"output\":[");
      for (int i = 0; i < node.output().size(); i++) {
        NamedExpression each = (NamedExpression) node.output().apply(i);
        text.append(i == 0 ? "[" : ",[").append(quoted(each.name())).append(',').append(each.exprId().id()).append(']');
      }
      text.append("],\"below\":[");
      for (int i = 0; whole && i < node.children().size(); i++) {
        if (i > 0) text.append(',');
        node((LogicalPlan) node.children().apply(i));
      }
      text.append("],\"fields\":{");
      for (int i = 0; i < node.productArity(); i++) {
        text.append(i == 0 ? "" : ",").append(quoted(node.productElementName(i))).append(':');
        field(node.productElement(i));
      }
      text.append("}}");
    }

    private void field(Object value) {
      if (value instanceof Option) {
        if (((Option) value).isDefined()) field(((Option) value).get());
        else text.append("null");
      } else if (value instanceof Expression) {
        expression((Expression) value, true);
      } else if (value instanceof Seq && (((Seq) value).isEmpty() || holds(((Seq) value).head()))) {
        text.append('[');
        for (int i = 0; i < ((Seq) value).size(); i++) {
          if (i > 0) text.append(',');
          field(((Seq) value).apply(i));
        }
        text.append(']');
      } else if (value instanceof Seq) {
        text.append(((Seq) value).size());
      } else if (value instanceof String) {
        text.append(quoted((String) value));
      } else if (value instanceof Product) {
        text.append(quoted(((Product) value).productPrefix()));
      } else if (value instanceof Boolean || value instanceof Integer || value instanceof Long) {
        text.append(value);
      } else {
        text.append("null");
      }
    }

    private boolean holds(Object item) { return item instanceof Expression || item instanceof Seq; }

    private void expression(Expression each, boolean first) {
      text.append("{\"expression\":").append(quoted(kind(each))).append(",\"type\":").append(type(each)).append(',');
      number(each, text);
      if (each instanceof NamedExpression) {
        text.append(",\"name\":").append(quoted(((NamedExpression) each).name()));
        text.append(",\"number\":").append(((NamedExpression) each).exprId().id());
        window(((NamedExpression) each).metadata());
      }
      if (each instanceof PlanExpression) {
        text.append(",\"number\":").append(((PlanExpression) each).exprId().id());
        if (whole) {
          text.append(",\"plan\":");
          node(planner.replacedIf(replaced, (LogicalPlan) ((PlanExpression) each).plan()));
        }
      }
      if (first && !whole) text.append(",\"sql\":").append(quoted(each.sql()));
      if (first && texts) text.append(",\"text\":").append(quoted(each.toString()));
      if (each instanceof Literal) constant(((Literal) each).value());
      if (each instanceof UnaryMinus && ((UnaryMinus) each).child() instanceof Literal) constant(each.eval(null));
      if (!each.deterministic()) text.append(",\"deterministic\":false");
      if (isTrue(each, false)) text.append(",\"foldable\":true");
      if (!isTrue(each, true)) text.append(",\"nullable\":false");
      if (each instanceof Cast ? ((Cast) each).needsTimeZone() : each instanceof TimeZoneAwareExpression) {
        text.append(",\"zoned\":true");
      }
      text.append(",\"of\":[");
      for (int i = 0; i < each.children().size(); i++) {
        if (i > 0) text.append(',');
        expression((Expression) each.children().apply(i), first && each instanceof And);
      }
      text.append(']');
      if (isCall(each)) fields(each);
      text.append('}');
    }

    private boolean isCall(Expression each) {
      return each instanceof AggregateExpression || each instanceof AggregateFunction || each instanceof SortOrder
          || each instanceof WindowExpression || each instanceof WindowFrame || each instanceof WindowFunction
          || each instanceof WindowSpec;
    }

    /** Whether an expression may be null, or has one value for all rows; what Spark has not resolved says neither. */
    private boolean isTrue(Expression each, boolean nullable) {
      try {
        return nullable ? each.nullable() : each.foldable();
      } catch (Exception unresolved) {
        return nullable;
      } catch (AssertionError undefined) { // of the list that IN compares with
        return nullable;
      }
    }

    private void window(Metadata metadata) {
      if (metadata.contains("spark.timeWindow")) text.append(",\"window\":\"time\"");
      if (metadata.contains("spark.sessionWindow")) text.append(",\"window\":\"session\"");
    }

    /** The fields of a call by their names, expressions by their places among its children. */
    private void fields(Expression each) {
      text.append(",\"fields\":{");
      for (int i = 0; i < each.productArity(); i++) {
        text.append(i == 0 ? "" : ",").append(quoted(each.productElementName(i))).append(':');
        argument(each.productElement(i), each.children());
      }
      text.append('}');
    }

    private void argument(Object value, Seq children) {
      if (value instanceof Option && ((Option) value).isDefined()) {
        argument(((Option) value).get(), children);
      } else if (value instanceof Expression) {
        text.append(children.indexOf(value));
      } else if (value instanceof Seq) {
        text.append('[');
        for (int i = 0; i < ((Seq) value).size(); i++) {
          if (i > 0) text.append(',');
          argument(((Seq) value).apply(i), children);
        }
        text.append(']');
      } else if (value instanceof Boolean) {
        text.append(value);
      } else if (value instanceof Product && ((Product) value).productArity() == 0 && !(value instanceof Option)) {
        text.append(quoted(((Product) value).productPrefix()));
      } else {
        text.append("null");
      }
    }

    private void constant(Object value) {
      if (value instanceof Boolean || value instanceof Integer || value instanceof Long || value instanceof Short
          || value instanceof Byte) {
        text.append(",\"constant\":").append(value);
      }
    }

    private Object type(Expression each) {
      try {
        return type(each.dataType());
      } catch (Exception none) {
        return null;
      }
    }

    /** The place of a type among those that the text has. */
    private Object type(DataType type) {
      if (types.containsKey(type)) return types.get(type);
      StringBuilder own = new StringBuilder("{\"name\":").append(quoted(type.typeName())).append(',');
      number(type, own);
      if (!UnsafeRowUtils.isBinaryStable(type)) own.append(",\"collated\":true");
      if (type instanceof ArrayType) own.append(",\"element\":").append(type(((ArrayType) type).elementType()));
      if (type instanceof StructType) {
        own.append(",\"fields\":[");
        for (int i = 0; i < ((StructType) type).fields().length; i++) {
          own.append(i == 0 ? "[" : ",[").append(quoted(((StructType) type).fields()[i].name())).append(',');
          own.append(type(((StructType) type).fields()[i].dataType())).append(']');
        }
        own.append(']');
      }
      textOfTypes.append(types.isEmpty() ? "" : ",").append(own).append('}');
      types.put(type, new Integer(types.size()));
      return types.get(type);
    }

    private String kind(TreeNode each) {
      String prefix = each.productPrefix();
      return prefix.isEmpty() ? each.getClass().getSimpleName().replaceAll("\\$+$", "") : prefix;
    }

    private String quoted(String plain) {
      StringBuilder quoted = new StringBuilder("\"");
      for (int i = 0; i < plain.length(); i++) {
        char each = plain.charAt(i);
        if (each == '"' || each == '\\') quoted.append('\\').append(each);
        else if (each < ' ') quoted.append(String.format("\\u%04x", new Object[] {new Integer(each)}));
        else quoted.append(each);
      }
      return quoted.append('"').toString();
    }
  }

  /** The nodes of a plan; `replaced`: with functions that Spark makes of others as these. */
  public Tree read(LogicalPlan plan, boolean replaced) {
    Tree tree = new Tree(this, true, replaced, false);
    tree.node(replacedIf(replaced, plan));
    return tree.close();
  }

  /** Expressions, and sequences of them. */
  public Tree expressions(Seq parts) {
    Tree tree = new Tree(this, true, false, false);
    tree.field(parts);
    return tree.close();
  }

  /** The types of expressions. */
  public Tree types(Seq expressions) {
    Tree tree = new Tree(this, true, false, false);
    tree.text.append('[');
    for (int i = 0; i < expressions.size(); i++) {
      tree.text.append(i == 0 ? "" : ",").append(tree.type((Expression) expressions.apply(i)));
    }
    tree.text.append(']');
    return tree.close();
  }

  /** Spark's number of a column; null: the expression is none, or of another kind. */
  public Object column(Expression each) {
    return each instanceof AttributeReference ? new Long(((AttributeReference) each).exprId().id()) : null;
  }

  /** The columns of the two sides of a join that are compared, and what else is asked of a pair; null: there are none. */
  public Seq equalKeys(Join join) {
    Option found = ExtractEquiJoinKeys.unapply(join);
    return found.isEmpty() ? null : seq(at(found, 1), at(found, 2), at(found, 3));
  }

  /** The keys of an aggregate, its calls of functions, and what it makes of both. */
  public Seq aggregated(LogicalPlan aggregate) {
    Option found = PhysicalAggregation.unapply(aggregate);
    return seq(at(found, 0), at(found, 1), at(found, 2));
  }

  private Object at(Option tuple, int place) { return ((Product) tuple.get()).productElement(place); }

  /** The nodes of a plan with Spark's texts of their expressions, and the same ones without Spark's numbers. */
  public Tree texts(LogicalPlan plan) {
    Tree tree = new Tree(this, true, false, true);
    tree.text.append('[');
    tree.node(plan);
    tree.text.append(',');
    tree.node(NormalizePlan.normalizeExprIds(plan));
    tree.text.append(']');
    return tree.close();
  }

  /** The nodes of a plan down to one that equals the base, or that has another number of nodes below it than one. */
  public Tree above(LogicalPlan plan, LogicalPlan base, boolean replaced) {
    Tree tree = new Tree(this, false, replaced, false);
    tree.text.append('[');
    for (LogicalPlan node = plan; node != null && !node.fastEquals(base); node = only(node.children())) {
      if (node != plan) tree.text.append(',');
      tree.node(replacedIf(replaced, node));
    }
    tree.text.append(']');
    return tree.close();
  }

  private LogicalPlan replacedIf(boolean replaced, LogicalPlan plan) {
    return replaced ? ReplaceExpressions$.MODULE$.apply(plan) : plan;
  }

  private LogicalPlan only(Seq children) { return children.size() == 1 ? (LogicalPlan) children.head() : null; }
}
