from scripts.test import Outcome, outcome

REPORT = '<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/></testsuites>'


def test_a_reports_errors_count_as_failures() -> None:
    assert outcome(1, REPORT) == Outcome(passed=3, failed=3, skipped=3)


def test_a_part_that_ended_without_a_report_is_a_failure() -> None:
    assert outcome(3, None) == Outcome(passed=0, failed=1, skipped=0)


def test_a_part_in_which_no_test_ran_is_a_failure() -> None:
    assert outcome(5, '<testsuites><testsuite tests="0"/></testsuites>') == Outcome(passed=0, failed=1, skipped=0)


def test_parts_add_up() -> None:
    assert Outcome(1, 2, 3) + Outcome(10, 20, 30) == Outcome(11, 22, 33)
