"""The code of `docs/process.md`, taken from the page."""

from tests.unit.operators.process_page import PAGE, code_of_the_page


def test_the_example_does_what_its_own_tests_say() -> None:
    tests = {name: test for name, test in code_of_the_page().items() if name.startswith("test_")}
    assert len(tests) == 1
    for test in tests.values():
        test()


def test_each_verb_of_the_page_is_there_and_none_is_left_out() -> None:
    from dagster_ckpt.operators.process import Lists, Timers, Values

    text = PAGE.read_text()
    for kind in (Values, Lists, Timers):
        verbs = [name for name in vars(kind) if not name.startswith("_")]
        assert verbs
        assert [verb for verb in verbs if f"| `{verb}(" not in text] == []
