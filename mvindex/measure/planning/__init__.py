"""Plan an index before it is built: sizes by arithmetic, and times from rates measured on request (`mvindex plan`)."""

from mvindex.measure.planning.layouts import Layout, Machine, Plan, PlanRequest, make_plan
from mvindex.measure.planning.sizes import Collection

__all__ = ["Collection", "Layout", "Machine", "Plan", "PlanRequest", "make_plan"]
