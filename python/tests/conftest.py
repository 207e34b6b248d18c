"""
For all tests: Ctrl-C is heard.

A shell makes what it starts in the background ignore it, and pytest would hand that on to the tests of Ctrl-C, which would wait
for ever.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
