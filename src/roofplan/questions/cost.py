"""What chips, machines, tokens and rents cost, and how prices went: ``roofplan cost``."""

from __future__ import annotations

from roofplan.inputs import ChipInputs, HistoryInputs, MachineInputs, RentInputs, TokensInputs
from roofplan.questions.question import Reply, Row, question


@question(ChipInputs, *("html", "csv", "explain", "depth", "json"), name="cost chip")
def chip(asked: ChipInputs, reply: Reply) -> None:
    """Bill of materials of an accelerator, from wafer to board, with its range and its maker's margin."""
    from roofplan.api import fit_at_hand
    from roofplan.money.request import bill_of_materials
    from roofplan.present.answers import costs
    from roofplan.present.screens.money import chip_screen

    found = bill_of_materials(asked, fit_at_hand(reply.beside.get("fit")))
    reply.table(lambda: [{"part": one.name, "cost": float(one.value), "unit": one.unit} for one in found.term.parts])
    explain, levels = reply.out("explain"), reply.levels

    def pictures() -> list[Row]:
        from roofplan.present.charts import money

        return money.bills(found)

    reply.show(
        lambda page: chip_screen(found, page, explain=explain, depth=levels),
        lambda: costs.chip_answer(found, asked, depth=levels if explain else 1),
        pictures,
        title=f"roofplan cost chip {found.chip.id}",
        result=found,
    )


@question(MachineInputs, *("html", "csv", "explain", "depth", "json"), name="cost machine")
def machine(asked: MachineInputs, reply: Reply) -> None:
    """What a machine of one's own costs per hour, in parts."""
    from roofplan.api import fit_at_hand
    from roofplan.money.request import owned_machines
    from roofplan.present.answers import costs
    from roofplan.present.answers.record import rows_of
    from roofplan.present.screens.money import machines_screen

    found = owned_machines(asked, fit_at_hand(reply.beside.get("fit")))
    reply.table(lambda: rows_of(costs.machine_answer(found, asked, depth=1).machines))
    explain, levels = reply.out("explain"), reply.levels

    def pictures() -> list[Row]:
        from roofplan.present.charts import money

        return money.machines(found)

    reply.show(
        lambda page: machines_screen(found, page, explain=explain, depth=levels),
        lambda: costs.machine_answer(found, asked, depth=levels if explain else 1),
        pictures,
        result=found,
    )


@question(
    TokensInputs,
    *("html", "csv", "explain", "depth", "json"),
    example="gpt-oss-120b --on h100-sxm:1 --tokens 1B/month",
    name="cost tokens",
    depth=("3", "levels of --explain"),
)
def tokens(asked: TokensInputs, reply: Reply) -> None:
    """What a month's tokens cost: an API, machines rented, machines of one's own, and where they break even."""
    from roofplan.api import token_costs
    from roofplan.present.answers.record import rows_of
    from roofplan.present.answers.tokens import tokens_answer, volume_rows
    from roofplan.present.screens.money import tokens_screen

    with reply.progress() as tick:
        found = token_costs(asked, progress=tick, **reply.beside)
    reply.table(lambda: rows_of(volume_rows(found)))
    explain, levels = reply.out("explain"), reply.levels

    def pictures() -> list[Row]:
        from roofplan.present.charts import money

        return money.monthly(found)

    reply.show(
        lambda page: tokens_screen(found, page, explain=explain, depth=levels),
        lambda: tokens_answer(found, asked, depth=levels if explain else 1, fit=reply.beside.get("fit")),
        pictures,
        title=f"roofplan cost tokens {asked.model}",
        result=found,
    )


@question(RentInputs, *("html", "csv", "json"), example="h100-sxm", name="cost rent")
def rent(asked: RentInputs, reply: Reply) -> None:
    """The dated rents of a device, kind by kind, and how they went over the years."""
    from roofplan.money.request import rents_of
    from roofplan.present.answers import costs
    from roofplan.present.answers.record import rows_of
    from roofplan.present.screens.money import rent_screen

    identity, found = rents_of(asked.device or "", asked.provider)
    reply.table(lambda: rows_of(costs.rent_answer(identity, found, asked).quotations))

    def pictures() -> list[Row]:
        from roofplan.present.charts import money

        return [money.price_history(identity, found)]

    reply.show(
        lambda page: rent_screen(found, page, identity),
        lambda: costs.rent_answer(identity, found, asked),
        pictures,
        title=f"roofplan cost rent {identity}",
        result=found,
    )


@question(HistoryInputs, *("html", "csv", "json"), name="cost history")
def history(asked: HistoryInputs, reply: Reply) -> None:
    """The price of a FLOP and of a transistor over the years, and what makes one device faster than another."""
    from roofplan.catalogue.machines import accelerator
    from roofplan.money.history import gain, milestones
    from roofplan.present.answers import costs
    from roofplan.present.answers.record import rows_of
    from roofplan.present.screens.money import history_screen

    found, step = milestones(), gain(accelerator(asked.old, "--from"), accelerator(asked.new, "--to"))
    reply.table(lambda: rows_of(costs.history_answer(found, step, asked).devices))

    def pictures() -> list[Row]:
        from roofplan.present.charts import money

        return money.history(found, step)

    reply.show(
        lambda page: history_screen(found, step, page),
        lambda: costs.history_answer(found, step, asked),
        pictures,
    )
