package dagster_ckpt;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.rules.RuleExecutor;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import scala.None$;
import scala.Option;
import scala.Product;
import scala.Some;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** What takes many calls from Python, each of which costs more than its work, in one. Janino compiles it: no generics. */
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
        plan = applied(plan, rules);
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

  private LogicalPlan applied(LogicalPlan plan, List rules) {
    for (int i = 0; i < rules.size(); i++) plan = (LogicalPlan) ((Rule) rules.get(i)).apply(plan);
    return plan;
  }

  /** The plan with functions that Spark makes of others as these. */
  public LogicalPlan withFunctionsReplaced(LogicalPlan plan) { return ReplaceExpressions$.MODULE$.apply(plan); }

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

  /** The name of a plan's first node that is a command or a statement; null: it is a query. */
  public String command(LogicalPlan plan) {
    if (plan instanceof Command || plan instanceof ParsedStatement) return plan.nodeName();
    for (int i = 0; i < plan.children().size(); i++) {
      String found = command((LogicalPlan) plan.children().apply(i));
      if (found != null) return found;
    }
    return null;
  }
}
