"""What the process of a training has: memory it keeps, signals it answers."""

import os
import platform
import resource
import signal
import subprocess
import sys
import threading

import pytest

from openauc.training.process import caught_signals, process_state

NEW_PAGES = """
import resource
import torch

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""

KEEPING = """
from openauc.environment import reuse_memory

before = new_pages()
reuse_memory()
print(before, sum(new_pages() for _ in range(20)))
"""

TRAINING = """
from openauc.methods import build_method, recipe_for
from openauc.protocols import get_protocol
from openauc.training.loop import train

data = get_protocol("digits").load(0).limited(20)
recipe = recipe_for("plain", "digits", epochs=1)
train(build_method("softmax", data.num_classes, image_size=recipe.image_size, width=2), data, recipe)
print(*(new_pages() for _ in range(5)))
"""


def in_a_fresh_process(code):
    """It cannot be undone, and what a heap can give back depends on everything that lies in it."""
    return [int(word) for word in subprocess.check_output([sys.executable, "-c", NEW_PAGES + code], text=True).split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_reused():
    # The fewest of three: a busy system may take idle pages away from a process, which then asks for them again.
    before, after = min((in_a_fresh_process(KEEPING) for _ in range(3)), key=lambda pages: pages[1])
    # Beyond the largest threshold of glibc, so that the system is asked each time, in huge pages or small.
    assert before > 0
    # The heap grows with the first few blocks; twenty would ask for five times as much.
    assert after < 4 * 40_000_000 // resource.getpagesize()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_training_leaves_the_memory_of_a_process_as_it_was():
    assert min(in_a_fresh_process(TRAINING)) > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_collected_and_a_second_one_acts_as_before(number, capsys):
    seen = []
    before = signal.signal(number, lambda *_: seen.append("acted"))
    try:
        with caught_signals(enabled=True) as caught:
            os.kill(os.getpid(), number)
            assert (caught, seen) == ([number], [])
            os.kill(os.getpid(), number)
            assert (caught, seen) == ([number], ["acted"])
        os.kill(os.getpid(), number)
        assert seen == ["acted", "acted"]
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err.count("once more to stop at once") == 1


def test_signals_are_left_alone_unless_asked_for_and_outside_the_main_thread():
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def look(enabled):
        with caught_signals(enabled=enabled) as caught:
            found.append((signal.getsignal(signal.SIGTERM) is before, caught))

    look(False)
    thread = threading.Thread(target=look, args=(True,))
    thread.start()
    thread.join()
    assert found == [(True, []), (True, [])]
    look(True)
    assert found[-1] == (False, [])
    assert signal.getsignal(signal.SIGTERM) is before


def test_alone_a_process_is_the_first_of_one():
    state = process_state()
    assert (state.process_index, state.num_processes, state.is_main_process) == (0, 1, True)
