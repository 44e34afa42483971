"""Random queries in Spark's SQL that compare text with a collation, as it is or within other values.

Which of several equal texts a query shows it leaves open, so the results have them in lower case, without spaces.
"""

from hypothesis import strategies as st

COLUMNS = {"k": "int", "s": "cased"}
"""Those of the tables `t` and `u`."""
COLLATIONS = ("UTF8_LCASE", "UNICODE_CI", "UTF8_LCASE_RTRIM")
VALUES = ("c", "c", "struct(c AS f)", "struct(k AS f, c AS g)", "struct(struct(c AS f) AS g)", "array(c, c)")
"""Of a row with the key `k` and the text `c`, which may be null as all of it may."""
_SHAPES = (
    "SELECT {v}, count(*) AS n, sum(k) AS total FROM {t} GROUP BY v",
    "SELECT {v}, {w}, count(*) AS n FROM (SELECT v, concat(c, 'x') AS w, c FROM {t}) GROUP BY v, w",
    "SELECT DISTINCT {v} FROM {distinct}",
    "SELECT k, count(DISTINCT v) AS n, count(DISTINCT v, 1) AS m, approx_count_distinct(c) AS o FROM {t} GROUP BY k",
    "SELECT {least}, {greatest}, max_by(1, c) AS one, count(c) AS n FROM {t} GROUP BY k",
    # In a query that has it, Spark's own min and max of text with a collation give other bytes.
    "SELECT {texts} FROM {t} GROUP BY k",
    "SELECT t.k, u.k AS j FROM {t} {join} {u} ON t.v = u.v",
    "SELECT t.k, {shown}, u.k AS j FROM {t} {outer} {u} ON t.v = u.v AND t.k <= u.k",
    "SELECT {v} FROM (SELECT v FROM {t} {set} SELECT v FROM {u})",
    "SELECT k FROM {t} WHERE {no}EXISTS (SELECT 1 FROM {u} WHERE u.v = t.v AND (u.k > t.k OR u.k IS NULL))",
    "SELECT k FROM {t} WHERE v {no}IN (SELECT v FROM {u})",
    "SELECT k, count(*) OVER (PARTITION BY v) AS n, rank() OVER (PARTITION BY k ORDER BY c {down}) AS r FROM {t}",
    "SELECT k, {text} FROM {t} ORDER BY c {down}, k LIMIT 2",
    "SELECT t.k FROM {t} {outer} {u} ON t.k = u.k WHERE t.c >= 'A' OR u.c = 'b'",
    "SELECT {v}, count(*) AS n FROM {t} GROUP BY ROLLUP(v, k)",
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query over the tables `t` and `u`."""
    collation, value = draw(st.sampled_from(COLLATIONS)), draw(st.sampled_from(VALUES))
    if draw(st.booleans()):
        value = f"CASE WHEN k <> 1 THEN {value} END"
    tables = {
        name: f"(SELECT k, c, {value} AS v FROM (SELECT k, s COLLATE {collation} AS c FROM {name})) AS {name}"
        for name in "tu"
    }
    return draw(st.sampled_from(_SHAPES)).format(
        **tables,
        **{each: _shown(each, each) for each in "vw"},
        text=_shown("c", "text"),
        shown=_shown("t.v", "v"),
        least=_shown("min(c)", "least"),
        greatest=_shown("max(c)", "greatest"),
        texts=_shown(f"listagg(c, '-' COLLATE {collation}) WITHIN GROUP (ORDER BY c)", "texts"),
        distinct=f"(SELECT v FROM {tables['t']} UNION ALL SELECT v FROM {tables['u']})",
        join=draw(st.sampled_from(["JOIN", "LEFT JOIN", "FULL JOIN"])),
        outer=draw(st.sampled_from(["JOIN", "LEFT JOIN"])),
        set=draw(st.sampled_from(["UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL", "UNION ALL"])),
        no=draw(st.sampled_from(["", "NOT "])),
        down=draw(st.sampled_from(["", "DESC"])),
    )


def _shown(value: str, name: str) -> str:
    return f"replace(lower(CAST({value} AS STRING)), ' ', '') AS {name}"
