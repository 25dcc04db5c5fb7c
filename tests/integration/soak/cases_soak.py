"""Tests that a run which a fault disturbs in every start ends in the bits of one that nothing disturbs."""
from harness import case
from soaked_run import SoakedRun


def soak(context, seed, mesh, starts):
    with SoakedRun(context, seed, mesh) as run:
        for _ in range(starts):
            run.live(*run.next())
        print("       " + run.finish(), flush=True)


# The schedule is fixed, and of starts, not of seconds: no verdict depends on the clock.
@case(120, mesh=["sharded", "changing"], wide=["sharded"])
def soak_for_half_a_minute(context, mesh):
    soak(context, 1, mesh, starts=14)


@case(900, tier="long", mesh=["hybrid", "changing"])
def soak_for_five_minutes(context, mesh):
    soak(context, 2, mesh, starts=150)
