"""Questions that roofplan answers: the command line, the pages and the tools of agents are made from them.

A question is declared once, beside the function that answers it: which inputs it has, and how its answer may leave. Nothing is
computed here.
"""

from __future__ import annotations

from roofplan.questions import cost, evidence, lists, measure, pool, serve, simulate, train
from roofplan.questions.question import OUTPUT, Draw, Given, Question, Reply, Row, Tick

__all__ = ["EVERY", "OUTPUT", "Draw", "Given", "Question", "Reply", "Row", "Tick"]

EVERY: dict[str, Question] = {
    one.name: one
    for one in (
        serve.serve,
        simulate.simulate,
        measure.endpoint,
        measure.stability,
        measure.machine,
        measure.memory,
        measure.runs,
        measure.import_,
        measure.compare,
        lists.model,
        lists.device,
        lists.devices,
        lists.models,
        lists.frameworks,
        lists.engines,
        lists.networks,
        lists.nodes,
        lists.prices,
        lists.schema,
        evidence.validate,
        evidence.calibrate,
        evidence.claims,
        evidence.benchmarks,
        train.train,
        cost.chip,
        cost.machine,
        cost.tokens,
        cost.rent,
        cost.history,
        pool.plan,
        pool.prove,
        pool.simulate,
    )
}
"""Every question by its name, in the order of the help."""
