"""`sad-hpc`: the command line."""

import io
import signal
import sys
from collections.abc import Sequence

from sad_hpc.commands import COMMANDS, report_error
from sad_hpc.errors import UserError
from sad_hpc.experiment.families import families_made_once
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.parallel.process import end_before_teardown, keep_streams_open
from sad_hpc.parallel.ranks import abort_other_ranks
from sad_hpc.parser import dashes_hint, make_parser
from sad_hpc.storage.files import keep_others_from_writing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code: 0 only if the command succeeded completely."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack the character ±
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = make_parser()
    # argparse accepts only adjacent positional arguments, but overrides may also follow an option.
    options, rest = parser.parse_known_args(arguments)
    takes_overrides = hasattr(options, "overrides")
    words = [*options.overrides, *rest] if takes_overrides else rest
    # argparse takes a word with a blank as positional, even if it begins with a dash.
    unknown = [word for word in words if word.startswith("-")] if takes_overrides else words
    if unknown:
        hint = dashes_hint(unknown) if takes_overrides else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if takes_overrides:
        options.overrides = words
    if options.command is None:
        parser.print_help()
        return 2
    keep_others_from_writing()
    try:
        return COMMANDS[options.command](options)
    except UserError as error:
        report_error(error, options.debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        report_error(UserError(f"{where}{error.strerror or error}"), options.debug)
    except Preempted as stop:
        # All ranks stop together, so none has to be ended.
        print(f"sad-hpc: {stop}; finished work is saved: start again to resume", file=sys.stderr)
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("sad-hpc: interrupted", file=sys.stderr)
    except SystemExit as end:
        if end.code not in (None, 0):
            abort_other_ranks()
            raise
        failure = UserError("sys.exit() was called before the command was complete")
        failure.__cause__ = end
        report_error(failure, options.debug)
    except Exception as error:
        report_error(error, debug=True)
    return _fail()


def run() -> int:
    """Run `main` as the console script, and return the exit code."""
    keep_streams_open()
    with families_made_once():
        code = main()
    end_before_teardown(code)
    return code


def _fail() -> int:
    """Return exit code 1; under MPI, first end the other ranks, which would wait for this one."""
    sys.stdout.flush()
    abort_other_ranks()
    return 1


if __name__ == "__main__":
    sys.exit(run())
