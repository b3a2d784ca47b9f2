"""Plan an index before it is built: sizes by arithmetic, times by the rates of a reference machine (`mvindex plan`)."""

from mvindex.measure.planning.layouts import Layout, Machine, Plan, PlanRequest, make_plan
from mvindex.measure.planning.sizes import Collection

__all__ = ["Collection", "Layout", "Machine", "Plan", "PlanRequest", "make_plan"]
