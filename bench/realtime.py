"""Benches of processes that sleep: as root, nothing else of the machine lets them wait for a turn."""
import os


def parse_args(parser):
    """The options with --realtime, which has begun: for this process and all that it starts."""
    parser.add_argument("--realtime", action="store_true", help="as root: processes do not wait for others' turns")
    options = parser.parse_args()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    return options
