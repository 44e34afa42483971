"""Dagster's GraphQL API, as much of it as a person with a mouse would use."""

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from demo.errors import DemoError

TIMEOUT_S = 30.0

UNFINISHED = frozenset({"QUEUED", "NOT_STARTED", "MANAGED", "STARTING", "STARTED", "CANCELING"})

_READY = """
query {
  instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } }
  workspaceOrError { ... on Workspace { locationEntries {
    loadStatus
    locationOrLoadError { __typename ... on PythonError { message } ... on RepositoryLocation { name } }
  } } }
}
"""

_JOBS = """
query { repositoriesOrError { ... on RepositoryConnection {
  nodes { name location { name } jobs { name } }
} } }
"""

_LAUNCH = """
mutation($job: JobOrPipelineSelector!) { launchRun(executionParams: {selector: $job}) {
  __typename
  ... on LaunchRunSuccess { run { runId } }
  ... on RunConfigValidationInvalid { errors { message } }
  ... on PipelineNotFoundError { message }
  ... on PythonError { message }
} }
"""

_RUNS = "query { runsOrError { ... on Runs { results { runId jobName status tags { key value } } } } }"

_TERMINATE = """
mutation($runs: [String!]!) { terminateRuns(runIds: $runs) { ... on TerminateRunsResult { terminateRunResults {
  __typename
  ... on TerminateRunFailure { message }
  ... on PythonError { message }
} } } }
"""

_ENGINE_EVENTS = """
query($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events { ... on EngineEvent {
  message
  metadataEntries { label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intRepr } }
} } } } }
"""

_STEP_ERRORS = """
query($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events { ... on ExecutionStepFailureEvent {
  error { className message errorChain { error { className message } } }
} } } } }
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A Dagster run."""

    id: str
    job: str
    status: str

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED


@dataclass(frozen=True, slots=True)
class DagsterApi:
    """Questions and orders to the webserver at `url`. An answer that says no raises DemoError."""

    url: str

    def ready(self) -> bool:
        """Whether a run could be launched now. Raises DemoError where the code location does not load."""
        try:
            answer = self._ask(_READY)
        except OSError:
            return False  # nobody listens yet
        locations = answer["workspaceOrError"]["locationEntries"]
        for location in locations:
            if (answer_of := location["locationOrLoadError"]) and answer_of["__typename"] == "PythonError":
                raise DemoError(f"the code location does not load: {answer_of['message']}")
        daemons = answer["instance"]["daemonHealth"]["allDaemonStatuses"]
        return (
            bool(locations)
            and all(location["loadStatus"] == "LOADED" for location in locations)
            and all(daemon["healthy"] for daemon in daemons if daemon["required"])
        )

    def launch(self, job: str) -> str:
        """Launch the job with its defaults, as the button does; returns the Dagster run's id."""
        return self._launch(job, {})

    def materialize(self, asset: str) -> str:
        """Materialize one asset, as the button on its page does; returns the Dagster run's id."""
        return self._launch("__ASSET_JOB", {"assetSelection": [{"path": [asset]}]})

    def _launch(self, job: str, selection: Mapping[str, object]) -> str:
        nodes = self._ask(_JOBS)["repositoriesOrError"]["nodes"]
        homes = [node for node in nodes if job in {each["name"] for each in node["jobs"]}]
        if not homes:
            raise DemoError(f"Dagster knows no such job. job={job}")
        selector = {
            "repositoryLocationName": homes[0]["location"]["name"],
            "repositoryName": homes[0]["name"],
            "jobName": job,
            **selection,
        }
        answer = self._ask(_LAUNCH, job=selector)["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            raise DemoError(f"Dagster did not launch the job. job={job}, answer={answer}")
        run: str = answer["run"]["runId"]
        return run

    def runs(self) -> list[Run]:
        """Every Dagster run of the instance, newest first."""
        results = self._ask(_RUNS)["runsOrError"]["results"]
        return [Run(result["runId"], result["jobName"], result["status"]) for result in results]

    def run(self, id_: str) -> Run:
        """One Dagster run. Raises DemoError where there is none."""
        for run in self.runs():
            if run.id == id_:
                return run
        raise DemoError(f"Dagster knows no such run. run={id_}")

    def terminate(self, runs: list[str]) -> None:
        """Ask Dagster runs to end, as the button does."""
        self._ask(_TERMINATE, runs=runs)

    def worker(self, run: str) -> int | None:
        """The process id of the Dagster run's worker, as Dagster recorded it; None where it recorded none yet."""
        for event in self._ask(_ENGINE_EVENTS, run=run)["logsForRun"]["events"]:
            if event and event["message"].startswith("Started process for run"):
                entries = {
                    entry["label"]: entry.get("text") or entry.get("intRepr") for entry in event["metadataEntries"]
                }
                return int(entries["pid"])
        return None

    def step_errors(self, run: str) -> list[str]:
        """What the steps of a Dagster run failed with, each with all that led to it, as `class: message` lines."""
        found = []
        for event in self._ask(_STEP_ERRORS, run=run)["logsForRun"]["events"]:
            if event and (error := event.get("error")):
                chain = [error, *(link["error"] for link in error["errorChain"])]
                found.append("\n".join(f"{each['className']}: {each['message'].strip()}" for each in chain))
        return found

    def _ask(self, query: str, **variables: object) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 (an address of our own)
            answer = json.load(response)
        if answer.get("errors"):
            raise DemoError(f"Dagster did not understand. errors={answer['errors']}")
        data: dict[str, Any] = answer["data"]
        return data
