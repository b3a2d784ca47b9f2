"""Plan an index before it is built: sizes by arithmetic, and times from rates measured on request (`mvindex plan`)."""

from mvindex.planning.layouts import Layout, Machine, Plan, PlanRequest, make_plan
from mvindex.planning.sizes import Collection

__all__ = ["Collection", "Layout", "Machine", "Plan", "PlanRequest", "make_plan"]
