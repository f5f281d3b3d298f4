"""Exit of a training process before Python's teardown, so that its exit code survives.

A thread of gloo may still have to free a tensor of the last collective, for which it takes Python's
lock.  During teardown that aborts the process (`terminate called without an active exception`): a
finished job counts as failed, and a job may be killed before its requeue.  Destroying the process
group does not end these threads while an object of DeepSpeed refers to it.
"""

import atexit
import os
import sys


def end_before_teardown(code: int) -> None:
    """Let a process in a process group end with `code` right after Python's exit functions.

    Call it last: functions registered with atexit later do not run, and a later `sys.exit` does
    not change the code.  An uncaught exception still ends the process with its own code.
    """
    if _in_process_group():
        atexit.register(_end, code)


def _in_process_group() -> bool:
    # A process in a group has imported the module; importing it here would take a second.
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
