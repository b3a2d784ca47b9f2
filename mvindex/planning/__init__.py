"""What an index will take before it is made: `mvindex plan`."""

from mvindex.planning.layouts import Asked, Layout, Machine, Plan, check_asked, make_plan
from mvindex.planning.sizes import Collection

__all__ = ["Asked", "Collection", "Layout", "Machine", "Plan", "check_asked", "make_plan"]
