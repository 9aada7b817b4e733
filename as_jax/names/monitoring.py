"""Events that libraries record, and listeners that receive them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "clear_event_listeners",
    "record_event",
    "record_event_duration_secs",
    "record_event_time_span",
    "record_scalar",
    "register_event_duration_secs_listener",
    "register_event_listener",
    "register_event_time_span_listener",
    "register_scalar_listener",
    "unregister_event_duration_listener",
    "unregister_event_listener",
    "unregister_event_time_span_listener",
    "unregister_scalar_listener",
]
Listener = Callable[..., None]


class _Channel:
    """One kind of event, with those who listen to it."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def record(self, event: str, *value: Any, **metadata: str | int) -> None:
        """Tell all listeners of an event: its name, its value if its kind has one, what else."""
        for listener in tuple(self.listeners):
            listener(event, *value, **metadata)

    def register(self, callback: Listener) -> None:
        """Call `callback` for every event from now on."""
        self.listeners.append(callback)

    def unregister(self, callback: Listener) -> None:
        """Stop calling `callback`."""
        assert callback in self.listeners
        self.listeners.remove(callback)


_events, _durations, _spans, _scalars = _CHANNELS = tuple(_Channel() for _ in range(4))
record_event = _events.record
record_event_duration_secs = _durations.record
record_event_time_span = _spans.record
record_scalar = _scalars.record
register_event_listener = _events.register
register_event_duration_secs_listener = _durations.register
register_event_time_span_listener = _spans.register
register_scalar_listener = _scalars.register
unregister_event_listener = _events.unregister
unregister_event_duration_listener = _durations.unregister
unregister_event_time_span_listener = _spans.unregister
unregister_scalar_listener = _scalars.unregister


def clear_event_listeners() -> None:
    """Remove all listeners."""
    for channel in _CHANNELS:
        channel.listeners.clear()
