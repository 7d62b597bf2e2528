"""Small workloads for the tests of the simulator."""

from __future__ import annotations

from hypothesis import strategies as st

from airflow_kftrain.simulate.workload import Job, Speed, Workload

HOUR = 3600.0


def job(name: str, submit: float, duration: float, gpus: int, **others: object) -> Job:
    return Job(id=name, submit=submit, duration=duration, gpus=gpus, **others)  # type: ignore[arg-type]


def workload(*jobs: Job) -> Workload:
    return Workload.of("test", jobs)


@st.composite
def workloads(
    draw: st.DrawFn, *, largest: int = 16, deadlines: bool = False, elastic: bool = False
) -> Workload:
    """Up to 25 jobs of up to ``largest`` GPUs that fit whole nodes of 8."""
    jobs = []
    for number in range(draw(st.integers(1, 25))):
        submit = float(draw(st.integers(0, 5000)))
        duration = float(draw(st.integers(10, 4000)))
        due = submit + draw(st.integers(1, 9000)) if deadlines and draw(st.booleans()) else None
        speed = Speed(((1, 1.0), (2, 1.8), (4, 3.0), (8, 4.0))) if elastic and draw(st.booleans()) else None
        sizes = [size for size in (1, 2, 4, 8, 16) if size <= largest and (speed is None or size <= 8)]
        jobs.append(
            Job(
                id=f"j{number}",
                submit=submit,
                duration=duration,
                gpus=draw(st.sampled_from(sizes)),
                key=draw(st.sampled_from(["", "a", "b"])),
                deadline=due,
                resumable=draw(st.booleans()),
                reports=draw(st.booleans()),
                speed=speed,
                fails=tuple(draw(st.lists(st.floats(1, 2000), max_size=2))),
            )
        )
    return Workload.of("drawn", jobs)
