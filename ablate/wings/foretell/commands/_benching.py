"""The output of `ablate bench`: a table of both libraries, the conditions of the measurement, and a figure."""

from __future__ import annotations

from ablate.wings.foretell.bench import OURS, THEIRS, BenchDocument
from reports.page.figures.drawing import blank, looks

HEADER = ("", OURS, "theirs", "speed, theirs = 1", "memory, theirs = 1")
PHASES = {"train": "training step", "prefill": "prefill", "decode": "decoding"}
MIB = 2**20


def rows(document: BenchDocument) -> list[tuple[str, ...]]:
    table = [_row(title, document["phases"][phase], THEIRS) for phase, title in PHASES.items()]
    beside = document["training_beside"]
    return [*table, *(_row(f"{PHASES['train']}, {name}", found, name) for name, found in beside.items())]


def _row(title: str, found: BenchDocument, theirs: str) -> tuple[str, ...]:
    ratio, grown = found["ratio"], [found[side]["peak_growth_bytes"] for side in (OURS, theirs)]
    return (
        title,
        *(_side(found[side]) for side in (OURS, theirs)),
        f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})",
        f"{grown[0] / grown[1]:.2f}" if all(grown) else "–",
    )


def _side(found: BenchDocument) -> str:
    speed, grown = found["tokens_per_second"]["median"], found["peak_growth_bytes"]
    used = f"{speed:,.0f} tokens/s, {100 * found['share_of_ceiling']:.0f} %"
    return used + ("" if grown is None else f", {grown / MIB:,.0f} MiB")


def conditions(document: BenchDocument) -> str:
    """One line: the model, the machine and the settings of a measurement."""
    threads = "" if document["device"] == "cuda" else f", threads: {document['threads']}"
    return (
        f"{document['parameters'] / 1e6:,.1f} M parameters, context {document['context']:,}, "
        f"batch {document['batch']}, {document['dtype']} on {document['device']}{threads}"
    )


def explained(document: BenchDocument) -> str:
    top = document["ceilings"]
    by_phase = {title: document["phases"][phase]["attention"] or "none" for phase, title in PHASES.items()}
    attention, *others = sorted(set(by_phase.values()))
    if others:
        attention = ", ".join(f"{title} {name}" for title, name in by_phase.items())
    return (
        f"{conditions(document)}. "
        f"{'Our training step and decoding are compiled, theirs are not. ' if document['compiled'] else ''}"
        f"Our attention: {attention}. "
        f"Medians of {document['rounds']} alternating rounds; in brackets, the quartiles of the rounds' ratios.\n"
        f"Shares are of this machine's ceiling: {top['flops_per_second'] / 1e9:,.0f} GFLOP/s of matrix products for "
        f"training and prefill, and {top['copy_bytes_per_second'] / 1e9:,.1f} GB/s of a copy for decoding, which "
        "reads weights and cache; above 100 % where these fit in the processor's caches.\n"
        "Memory: peak use during the work, minus what was in use before.\n"
        f"Largest difference between their log-probabilities: {document['largest_difference']:.1e}. "
        f"transformers {document['versions']['transformers']}, torch {document['versions']['torch']}."
    )


def plotted(document: BenchDocument) -> str:
    """The share of the machine's ceiling that each library reaches in each phase, as a complete HTML page that works
    offline. Whiskers extend to the quartiles of the rounds; the text gives the median tokens per second."""
    import plotly.graph_objects as go

    figure = blank("share of the machine's ceiling (%)", "", 140 + 90 * len(PHASES))
    for side, look in looks((OURS, THEIRS)).items():
        found = [document["phases"][phase][side] for phase in PHASES]
        rates = [each["tokens_per_second"] for each in found]
        shares = [100 * each["share_of_ceiling"] for each in found]
        above, below = (
            [share * abs(rate[end] / rate["median"] - 1) for share, rate in zip(shares, rates, strict=True)]
            for end in ("q75", "q25")
        )
        bars = [list(PHASES.values()), [look.label] * len(PHASES)]
        figure.add_bar(
            x=shares,
            y=bars,
            orientation="h",
            marker={"color": look.colour},
            error_x={"type": "data", "array": above, "arrayminus": below},
        )
        figure.add_scatter(
            x=[share + whisker for share, whisker in zip(shares, above, strict=True)],
            y=bars,
            mode="text",
            text=[f"  {rate['median']:,.0f} tokens/s" for rate in rates],
            textposition="middle right",
            cliponaxis=False,
        )
    figure.update_yaxes(autorange="reversed")
    title = {"text": conditions(document), "font": {"size": 13}}
    figure.update_layout(showlegend=False, title=title, margin={"t": 60, "l": 200, "r": 120})
    config = {"displaylogo": False, "responsive": True}
    page: str = go.Figure(figure.to_plotly_json()).to_html(include_plotlyjs=True, config=config)
    return page
