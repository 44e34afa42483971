from random import Random

import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.operators.shared.ranked import rank_tree
from tests.unit.operators.shared.ranked.ranked_bags import Bags, Row


@pytest.fixture(params=[2, 64])
def leaves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows a leaf may have: a tree of many levels, and a shallow one."""
    size: int = request.param
    monkeypatch.setattr(rank_tree.RankTree, "leaf_rows_max", size)
    return size


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("distinct", [1, 1000])
def test_the_best_rows_are_those_of_the_whole_bag(count: int, distinct: int) -> None:
    random, bags = Random(count), Bags(count, distinct=distinct)
    for _ in range(30):
        rows: list[Row] = []
        for _ in range(random.choice([1, 5, 60])):
            v = None if random.random() < 0.1 else random.randrange(-40, 40)
            rows.append((random.choice(["a", "a", "b", None]), v, random.choice(["x", "y", None])))
        there = [(key, *row) for key, bag in bags.model.items() for row, copies in bag.items() if copies]
        gone = random.sample(there, min(len(there), random.choice([0, 3, 60])))
        weights = [1] * len(rows) + [-bags.model[row[0]][row[1:]] for row in gone]
        bags.add(rows + gone, weights)


@pytest.mark.usefixtures("leaves")
def test_the_next_row_comes_up_until_none_is_left() -> None:
    bags = Bags(2)
    bags.add([("a", v, "x") for v in range(150)], [1] * 150)
    order = list(range(150))
    Random(1).shuffle(order)
    for v in order:
        bags.add([("a", v, "x")], [-1])
    assert bags.table.rows == {}, "nothing is kept of an empty bag"


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("appends", [False, True])
def test_the_rows_that_it_has_read_are_not_looked_up_again(appends: bool) -> None:
    bags = Bags(2, appends)
    bags.add([("a", v, "x") for v in range(150)], [1] * 150)
    if not appends:
        bags.add([("a", v, "x") for v in range(0, 150, 2)], [-1] * 75)
    assert bags.table.looked_up_later == 0


def test_a_bag_of_few_rows_is_one_node() -> None:
    bags = Bags(3)
    bags.add([("a", v, "x") for v in range(64)], [1] * 64)
    assert len(bags.table.rows) == 64
    bags.add([("a", 64, "x")], [1])
    assert len({row["_node"] for row in bags.table.rows.values()}) > 1


def test_equal_rows_are_counted_wherever_they_are() -> None:
    bags = Bags(1)
    bags.add([("a", v, "x") for v in range(200)], [1] * 200)
    bags.add([("a", 199, "x"), ("a", 199, "x")], [1, 1])
    bags.add([("a", 199, "x")], [-2])
    bags.add([("a", 199, "x")], [-1])
    assert bags.wanted("a") == [((198, "x"), 1)]


def test_a_node_has_a_bounded_number_of_rows_however_many_the_key_has() -> None:
    bags = Bags(3)
    for start in range(0, 2_000, 500):
        bags.add([("a", v, "x") for v in range(start, start + 500)], [1] * 500)
    nodes = [row["_node"] for row in bags.table.rows.values()]
    sizes = [nodes.count(node) for node in set(nodes)]
    assert max(sizes) <= 64
    leaves = [row for row in bags.table.rows.values() if not row["_inner"]]
    assert len(leaves) == 2_000
    assert len(nodes) - len(leaves) < 1_000


def test_rows_of_an_input_that_only_appends_are_forgotten() -> None:
    bags = Bags(3, appends=True)
    values = list(range(500))
    Random(2).shuffle(values)
    for start in range(0, 500, 50):
        bags.add([("a", v, "x") for v in values[start : start + 50]], [1] * 50)
    assert sorted(row["v"] for row in bags.table.rows.values()) == [497, 498, 499]


@pytest.mark.parametrize("rows", [1, 200])
def test_a_row_that_was_never_added_is_an_error_that_names_the_table(rows: int) -> None:
    bags = Bags(3)
    bags.add([("a", v, "x") for v in range(rows)], [1] * rows)
    with pytest.raises(CorruptStateError, match=r"retracted that were never added.*table=ranked, rows=1"):
        bags.add([("a", 0, "y")], [-1])
