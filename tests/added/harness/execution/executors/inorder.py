from harness.execution.executor import Executor
from harness.execution.local.slots import Slots
from harness.execution.local.supervisor import run_trials


class InOrder(Executor):
    """Run trials one after the other, and say which."""

    def at_once(self, trials):
        return 1

    def run(self, trials, run_options, following):
        with following.reporter(len(trials)) as reporter:
            for trial in trials:
                print("in order:", trial.slug, flush=True)
                run_trials([trial], run_options, Slots(1), reporter, provenance=following.provenance)
