"""Which questions have a page, what its form shows first, and where newcomers may begin."""

from __future__ import annotations

from dataclasses import dataclass

from roofplan.questions import EVERY, Question


@dataclass(frozen=True, slots=True)
class Page:
    """A question as a page.

    Parameters
    ----------
    question : name of the question.
    title : what stands in the navigation.
    first : inputs that the form shows at once; the others are folded.
    presets : what newcomers may ask: labels and queries; the first is answered where the URL asks nothing.
    refused : inputs that a page does not take.
    """

    question: str
    title: str
    first: tuple[str, ...] = ()
    presets: tuple[tuple[str, str], ...] = ()
    refused: frozenset[str] = frozenset()

    @property
    def asked(self) -> Question:
        """The question."""
        return EVERY[self.question]

    @property
    def path(self) -> str:
        """Its place in URLs."""
        return self.question.replace(" ", "/")


FILES = frozenset({"trace", "plan", "file", "delete", "members", "churn"})
"""Inputs that read the disk or change it."""

PAGES: dict[str, Page] = {
    one.path: one
    for one in (
        Page(
            "serve",
            "Serve",
            ("model", "on", "tpot", "input", "output", "engine", "precision", "concurrency", "best"),
            (
                ("A 70B model on one H100 server", "model=llama-3.1-70b&on=h100-sxm:8&tpot=50ms"),
                ("DeepSeek-R1 on H200, in FP8", "model=deepseek-r1&on=h200-sxm:8&concurrency=64"),
                ("An 8B model on a gaming card", "model=qwen3-8b&on=rtx-4090:1&precision=fp8,awq"),
                ("Three machines compete", "model=gpt-oss-120b&on=h100-sxm:2&on=mi300x:1&on=rtx-5090:4&tpot=30ms"),
            ),
            FILES,
        ),
        Page(
            "simulate",
            "Simulate",
            ("model", "on", "rate", "clients", "input", "output", "lengths", "slo", "find"),
            (
                (
                    "Four requests a second",
                    "model=llama-3.1-70b&on=h100-sxm:8&rate=4req/s&slo=ttft=2s@p99,tpot=60ms@p95&requests=2000",
                ),
                ("Thirty-two clients", "model=qwen3-8b&on=rtx-4090:1&precision=fp8&clients=32&requests=1000"),
            ),
            FILES,
        ),
        Page(
            "train",
            "Train",
            ("model", "on", "tokens", "batch", "sequence", "framework", "precision", "strategy"),
            (
                ("Pre-train 70B on 512 H100", "model=llama-3.1-70b&on=h100-sxm:512@ib-ndr&tokens=1T"),
                ("LoRA of 8B on one card", "model=llama-3.1-8b&on=rtx-4090:1&method=qlora&tokens=10M&rank=16"),
            ),
            FILES,
        ),
        Page(
            "cost tokens",
            "Tokens",
            ("model", "on", "tokens", "price", "tpot", "input", "output"),
            (("A billion tokens a month", "model=gpt-oss-120b&on=h100-sxm:1&tokens=1B/month&price=rent,own"),),
            FILES,
        ),
        Page(
            "cost machine",
            "Machines",
            ("on", "years", "electricity", "place"),
            (("Four gaming cards against a server", "on=rtx-4090:4&on=h100-sxm:8"),),
        ),
        Page(
            "cost chip",
            "Chips",
            ("device", "node", "area", "hbm", "price"),
            (
                ("What an H100 is made of", "device=h100-sxm"),
                ("A chip of one's own", "node=n5&area=400mm2&dies=2&hbm=96GiB&price=9000USD"),
            ),
        ),
        Page(
            "pool plan",
            "Pools",
            ("model", "member", "precision", "software", "best", "client"),
            (
                (
                    "A 70B model on four cards of neighbours",
                    "model=llama-3.1-70b&precision=q4_k_m&member=2xrtx-4090@1gbit:4ms&member=2xrtx-3090@1gbit:4ms",
                ),
                (
                    "The same for many users",
                    "model=llama-3.1-70b&precision=q4_k_m&member=2xrtx-4090@1gbit:4ms&member=2xrtx-3090@1gbit:4ms&software=petals&best=throughput",
                ),
            ),
            FILES,
        ),
        Page(
            "pool simulate",
            "Pool life",
            ("model", "member", "precision", "rate", "session", "online", "check", "cheaters"),
            (
                (
                    "A street with twelve cards",
                    "model=qwen3-32b&precision=q4_k_m&member=4xrtx-3060@1gbit:4ms&member=4xrtx-4060-ti-16@1gbit:4ms&member=4xrtx-3090@1gbit:4ms&days=5",
                ),
            ),
            FILES,
        ),
        Page("cost rent", "Rents", ("device", "provider"), (("Rents of an H100", "device=h100-sxm"),)),
        Page("cost history", "History", ("from", "to"), (("From V100 to B200", "from=v100-sxm2-32&to=b200"),)),
        Page("model", "Model", ("model", "context", "kv_precision"), (("DeepSeek-V3", "model=deepseek-v3"),)),
        Page("device", "Device", ("device", "what_is"), (("H100 SXM", "device=h100-sxm"),)),
        Page("models", "Models", ("text",), (("Every model", "text="),)),
        Page("devices", "Devices", ("text",), (("Every device", "text="),)),
        Page("claims", "Claims", ("text", "topic"), (("Every claim", "text="),)),
        Page(
            "validate",
            "Accuracy",
            ("kind", "fail_above"),
            (("Training runs", "kind=training"), ("Serving runs", "kind=inference")),
            FILES,
        ),
        Page(
            "benchmarks",
            "Benchmarks",
            ("model", "scenario", "category", "round", "device", "per"),
            (("Llama 2 70B, offline", "model=llama2-70b&scenario=Offline&category=closed&round=v5.1"),),
        ),
        Page("runs", "Runs", ("run",), (("What was measured here", "run="),), FILES),
    )
}
"""Every page by its path."""
