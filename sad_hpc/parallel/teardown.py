"""How a process ends that has trained: with its exit code, before Python is torn down.

A thread of gloo may be about to free a tensor of the last collective call.  It needs Python's lock
for that, and asking for the lock while Python is torn down aborts the process (`terminate called
without an active exception`): a finished job counts as failed, and one that was to be queued again
may be killed before it is.  Leaving the process group does not end the threads, as long as anything
in DeepSpeed holds it.
"""

import atexit
import os
import sys


def end_before_teardown(code: int) -> None:
    """Has this process end with `code` once Python's exit functions have run, if it is in a group.

    To be called last: what is registered with atexit later is not run, and a later `sys.exit` does
    not change the code.  An exception that nobody catches still ends the process in its own way.
    """
    if _in_process_group():
        atexit.register(_end, code)


def _in_process_group() -> bool:
    # Whoever is in a group has imported it, which takes a second.
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_initialized()


def _end(code: int) -> None:
    if getattr(sys, "last_value", None) is not None:
        return
    atexit.unregister(_end)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
