import re

import pytest

from harness.core.records import blank_record
from harness.reporting.report import ReportedResults
from harness.reporting.tables.cells import milliseconds
from harness.reporting.tables.rendering import latex, markdown, plain

CHOSEN = (
    "chosen learning rates: digits: 0.01 (conv1x1, my_layer & co, <script>); waveforms: 0.01 (conv1x1, my_layer & co, "
    "<script>)"
)


def grid(table):
    """Return {row label: {column header: cell}}."""
    return {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}


def made(run):
    plan, records = run
    return ReportedResults.of(plan, records).report.tables


# Density


def test_density_table_in_plan_order_with_mean_and_interval(density_run):
    table, choices, differences, cost, _ = made(density_run)
    assert choices.name == "made_up-choices"
    assert [row[0] for row in table.rows] == ["conv1x1", "my_layer & co", "<script>"]
    assert table.header == ("layer", "digits, bits/dim ↓", "waveforms, nats/dim ↓")
    row = grid(table)["my_layer & co"]
    assert row["digits, bits/dim ↓"] == "3.010 [3.000, 3.020]"  # of 3.00, 3.01, 3.02
    assert row["waveforms, nats/dim ↓"] == "-3.010 [-3.020, -3.000]"
    assert table.notes == (CHOSEN,) and not table.bold
    assert grid(differences)["my_layer & co"] == {
        "layer": "my_layer & co",
        "digits": "+1.000 [+1.000, +1.000]",  # differences of seeds are equal
        "waveforms": "+1.000 [+1.000, +1.000]",
    }
    lowest = grid(differences)["conv1x1"]["digits"], grid(differences)["<script>"]["waveforms"]
    assert set(lowest) == {"lowest mean; lowest in 3 of 3"}
    assert cost.header == (
        "layer",
        "parameters, digits",
        "parameters, waveforms",
        "forward, ms, digits",
        "forward, ms, waveforms",
        "inverse, ms, digits",
        "inverse, ms, waveforms",
    )
    row = grid(cost)["my_layer & co"]
    assert row["parameters, digits"] == "1,106 (1,100)", "the second: what no mask hides"
    assert grid(cost)["conv1x1"]["parameters, digits"] == "1,006", "nothing is masked"
    assert row["forward, ms, digits"] == "1.00 (0.010)"


def test_from_eight_seeds_on_the_leaders_are_bold_and_differences_are_tested(many_seeds):
    plan, records = many_seeds(8)
    table, _, differences, *_ = made((plan, records))
    assert table.bold == {(0, 1), (1, 2), (2, 2)}, "on waveforms the last two rows do not differ"
    assert f"{table.rows[0][1]} *  " in plain(table) and plain(table).endswith("\n* bold")
    assert "Bold: the lowest mean, and every row that does not differ from it by a paired t test" in table.caption
    assert grid(differences)["<script>"]["digits"].endswith(", p < 0.001, d 156.2")
    alike = grid(differences)["<script>"]["waveforms"], grid(differences)["my_layer & co"]["waveforms"]
    assert sorted(alike) == [  # equal on three of the seeds
        "+0.002 [-0.007, +0.012], p 0.685, d 0.1; lowest in 5 of 8",
        "lowest mean; lowest in 6 of 8",
    ]
    assert "p: paired t test" in differences.caption and "share the order of the data" in differences.caption
    assert "| **2.0" in markdown(table) and r"& \textbf{2.0" in latex(table)
    assert "mean [95 % bootstrap interval] of 8 seeds;" in table.caption and "highest" not in differences.caption

    few = made(many_seeds(7))
    assert not few[0].bold and "p <" not in markdown(few[2]) and "No test below 8 seeds" in few[2].caption
    assert not any("95 %" in each.caption for each in few[:2]) and "mean [lowest, highest]" in few[0].caption
    assert "mean [Holm-adjusted Student's 95 % interval] over paired seeds" in few[2].caption
    assert "it excludes zero only where this shows a difference" in few[2].caption
    assert "Holm-adjusted" not in differences.caption
    assert grid(few[2])["<script>"]["digits"] == "+2.000 [+1.986, +2.014]", "as in the answer and the ranking"
    pair = made(many_seeds(2))[2]
    assert "mean, too few for an interval, over" in pair.caption and grid(pair)["<script>"]["digits"] == "+2.010"


@pytest.mark.parametrize("fault", ["audit", "failed", "oracle"])
def test_failed_rows_failed_audits_and_oracles_are_not_ranked(many_seeds, replanned, fault):
    plan, records = many_seeds(8)
    if fault == "oracle":
        plan, records = replanned((plan, records), lambda trial: {"layer.oracle": trial.layer.row == "conv1x1"})
    else:
        fourth = next(i for i, trial in enumerate(plan.trials) if trial.seed == 3)  # conv1x1 on digits
        records[fourth].rows[0] |= {"audit": "failed", "audit_reason": "log-det is 1"}
        if fault == "failed":
            records[fourth] = blank_record(plan.trials[fourth], "diverged", "nan")
    table, _, differences, *_ = made((plan, records))
    assert (1, 1) in table.bold, "the second row is the best of the ranked rows"
    assert grid(differences)["my_layer & co"]["digits"] == "lowest mean; lowest in 8 of 8"
    assert grid(differences)["conv1x1"]["digits"] == "–" and "not every trial" in differences.notes[0]


def test_the_heading_of_an_empty_column_has_the_unit_of_its_data(density_run):
    plan, records = density_run
    for index, trial in enumerate(plan.trials[:18]):
        records[index] = blank_record(trial, "oom", "no memory")
    assert made((plan, records))[0].header == ("layer", "digits, bits/dim ↓", "waveforms, nats/dim ↓")


def test_the_density_caption_states_seeds_training_and_device(density_run):
    caption = made(density_run)[0].caption
    density_run[1][0].environment = {"cpu": "A Processor"}
    assert "cpu (A Processor), float32" in made(density_run)[0].caption
    for part in (
        "mean [lowest, highest] of 3 seeds, too few for an interval or a test",
        "profile quick",
        "40 training steps of batch 16",
        "cpu",
        "float32",
    ):
        assert part in caption
    assert "compared with no published number" in caption and "Bold" not in caption
    assert "5 samples, batch 8, 1 thread" in made(density_run)[3].caption


def test_settings_of_single_columns_and_rows_are_in_the_caption(many_seeds, replanned):
    def change(trial):
        return {"flow.width": 64} if (trial.data.label, trial.layer.row) == ("waveforms", "conv1x1") else {}

    caption = made(replanned(many_seeds(1), change))[0].caption
    size = "Glow with 2 levels of 2 steps, width 8"
    assert f"{size} on digits; {size.removeprefix('Glow with ')} (conv1x1: width 64) on waveforms" in caption


def test_a_failure_is_in_its_cell_and_its_reason_in_the_notes(density_run):
    plan, records = density_run
    records[0] = blank_record(plan.trials[0], "diverged", "loss is nan at step 3")
    for index in (5, 11, 17):
        records[index] = blank_record(plan.trials[index], "error", "ValueError: no (flows/glow.py:3)")
    table = made((plan, records))[0]
    assert grid(table)["conv1x1"]["digits, bits/dim ↓"] == "2.015 [2.010, 2.020] (2 of 3 seeds, diverged) [1]"
    assert grid(table)["<script>"]["waveforms, nats/dim ↓"] == "error [2]"
    assert table.notes == (
        "[1] conv1x1 on digits: diverged: loss is nan at step 3",
        "[2] <script> on waveforms: error: ValueError: no (flows/glow.py:3)",
        CHOSEN.replace(", <script>)", ")").replace("co);", "co, <script>);"),
    )


@pytest.mark.parametrize(
    "fault", [{"audit": "failed", "audit_reason": "level0/step1: log-det is 1"}, {"below_floor": True}]
)
def test_a_failed_audit_is_marked_and_explained(density_run, fault):
    plan, records = density_run
    records[4].rows[0] |= fault
    table = made((plan, records))[0]
    cell = grid(table)["my_layer & co"]["waveforms, nats/dim ↓"]
    assert cell == "-3.010 [-3.020, -3.000] † [1]"
    reason = fault.get("audit_reason", "below the resolution floor")
    assert table.notes[0] == f"[1] my_layer & co on waveforms: {reason}"
    assert table.notes[-2].startswith("† not a likelihood to compare")
    assert sum("†" in cell for row in table.rows for cell in row) == 1


def test_a_warning_on_data_marks_all_of_its_values(density_run):
    plan, records = density_run
    for record in records:
        if record.trial.get("data", {}).get("label") == "digits":
            record.notes |= {"data": "digits", "data warning": "3 of 4 seen", "data remark": "b equals a"}
    table = made((plan, records))[0]
    for row, cells in grid(table).items():
        assert cells["digits, bits/dim ↓"].endswith("[1]") and not cells["waveforms, nats/dim ↓"].endswith("[1]"), row
    assert table.notes[0] == "[1] digits: 3 of 4 seen" and "digits: digits; b equals a" in table.notes
    assert dict(ReportedResults.of(plan, records).report.answer.remarks)["Data"] == ("digits: 3 of 4 seen.",)


def test_an_estimate_is_marked_and_noted_with_its_standard_error(density_run):
    plan, records = density_run
    records[4].rows[0] |= {"estimate_error": 0.0021}
    records[4].notes["estimates"] = "audited, and so on"
    table = made((plan, records))[0]
    assert grid(table)["my_layer & co"]["waveforms, nats/dim ↓"] == "≈ -3.010 [-3.020, -3.000] [1]"
    assert table.notes[0].startswith("[1] my_layer & co on waveforms: the log-determinant is estimated")
    assert "a standard error of 0.002 nats/dim; audited, and so on" in table.notes[0]
    assert table.notes[-2].startswith("≈ an estimate of the likelihood")
    assert sum("≈" in cell for row in table.rows for cell in row) == 1


def test_baselines_are_not_described_as_glow(many_seeds, replanned):
    run = many_seeds(1)
    caption = made(replanned(run, lambda trial: {"layer.baseline": trial.layer.row == "my_layer & co"}))[0].caption
    assert "same budget: my_layer & co; 2 levels of 2 steps, width 8." in caption
    assert "Complete flows" not in made(run)[0].caption


def test_raw_lattice_values_are_noted(many_seeds, replanned):
    run = replanned(many_seeds(1), lambda trial: {"data.dequantise": False, "data.allow_unbounded": True})
    assert any(": raw values without dequantisation" in note for note in made(run)[0].notes)


def test_the_notes_of_a_table_describe_its_data(many_seeds, replanned):
    def change(trial):
        digits = {"data.permute": 0, "data.augmentation": "crop_flip"}
        control = {
            "layer.oracle": trial.layer.row == "<script>",
            "layer.keep_mixer": trial.layer.row == "my_layer & co",
        }
        return control | (digits if trial.data.label == "digits" else {"data.permute": "per-seed"})

    plan, records = replanned(many_seeds(3), change)
    for record in records:
        record.notes = {"data": "digits of scikit-learn", "splits": "1,297 train, 250 validation, 250 test"}
        if record.trial["data"]["label"] == "waveforms":
            record.notes = {
                "data": "PPG",
                "splits": "9 train, 1 validation, 1 test",
                "steps": "0.0005 NU, 0.05 mmHg",
                "checksum": "0123456789abcdef" * 4,
                "floor": "a filter",
            }
    records[0].notes["layer"] = "cut into parts"
    assert made((plan, records))[0].notes == (
        "digits: digits of scikit-learn; 1,297 train, 250 validation, 250 test",
        "digits: all entries permuted, the same in every example and split: one permutation for all seeds, that of "
        "seed 0",
        "digits: training images moved at random (crop_flip), held-out images unchanged",
        "digits, conv1x1: cut into parts",
        "waveforms: PPG; 9 train, 1 validation, 1 test; lattice steps 0.0005 NU, 0.05 mmHg; SHA-256 0123456789ab…; "
        "no resolution floor: a filter",
        "waveforms: all entries permuted, the same in every example and split: a permutation for each seed, so "
        "intervals and p-values include the variation between permutations",
        "<script>: its flow knows the permutation and starts with the inverse: a bound for the other rows",
        "my_layer & co: a control that keeps the 1x1 mixer, so that each step has two linear layers",
        CHOSEN,
    )


def test_a_remark_on_several_data_sets_stands_once(density_run):
    plan, records = density_run
    for record in records[: len(plan.trials) - 2]:
        record.notes = {"data": "generated"}
    assert made((plan, records))[0].notes == ("digits, waveforms: generated", CHOSEN)


def test_missing_trials_and_values_are_marked(density_run):
    plan, records = density_run
    records[3].rows[0]["nats_per_dim"] = None
    table = made((plan, records[1:]))[0]
    assert "(2 of 3 seeds, missing)" in grid(table)["conv1x1"]["digits, bits/dim ↓"]
    assert "(2 of 3 seeds, no value)" in grid(table)["conv1x1"]["waveforms, nats/dim ↓"]
    empty = made((plan, []))[0]
    assert grid(empty)["<script>"]["digits, bits/dim ↓"] == "missing" and not empty.notes


def test_published_numbers_have_their_own_table_unless_the_protocol_is_the_same(density_run):
    plan, records = density_run
    table, _, _, _, quoted = made(density_run)
    assert not any("published" in head for head in table.header)
    assert "not comparable" in quoted.caption and "A Paper (2022), table 1" in quoted.caption
    assert quoted.header == ("model", "digits", "source")
    assert quoted.rows == (("MAF", "4.31", "quoted"), ("conv1x1", "3.40", "published"))

    paper, *others = made((plan.model_copy(update={"profile": "paper"}), records))
    assert paper.header == (
        "layer",
        "digits, bits/dim ↓, measured",
        "digits, bits/dim ↓, published",
        "waveforms, nats/dim ↓",
    )
    published = {row: cells["digits, bits/dim ↓, published"] for row, cells in grid(paper).items()}
    assert published == {"conv1x1": "3.40", "my_layer & co": "–", "<script>": "–", "MAF (quoted)": "4.31"}
    assert grid(paper)["MAF (quoted)"]["digits, bits/dim ↓, measured"] == "–"
    assert "published: A Paper (2022), table 1" in paper.notes and "no published number" not in paper.caption
    assert not any("published" in table.name for table in others)
    text = latex(paper)
    assert r"& \multicolumn{2}{c}{digits, bits/dim $\downarrow$} &  \\" in text and r"\cmidrule(lr){2-3}" in text
    assert "& measured & published &" in re.sub(" +", " ", text)


def test_data_sets_that_share_counts_and_shapes_share_columns(density_run, replanned):
    for record in density_run[1][:18]:
        record.rows[0]["parameters"] = 7
    cost = made(replanned(density_run, lambda trial: {"shape": (4, 32)} if trial.kind == "runtime" else {}))[3]
    assert cost.header == ("layer", "parameters", "forward, ms", "inverse, ms")


# Runtime and parameters


def test_runtime_tables(runtime_run):
    made_tables = made(runtime_run)
    assert [table.name for table in made_tables] == [
        f"made_up-{sweep}-{name}"
        for sweep in ("spatial", "batch")
        for name in ("forward", "forward_backward", "inverse", "growth", "memory")
        if (sweep, name) != ("batch", "growth")  # two points
    ]
    spatial, batch = made_tables[0], made_tables[5]
    assert spatial.header == ("layer", "3×4×4", "3×8×8", "3×16×16")
    assert grid(spatial)["<script>"] == {
        "layer": "<script>",
        "3×4×4": "0.750 (0.010)",
        "3×8×8": "unsupported [1]",
        "3×16×16": "3.00 (0.010)",
    }
    assert spatial.notes == ("[1] <script>: side 8 is even",)
    assert "median (interquartile range) of 5 samples, layers" in spatial.caption and "batch 4" in spatial.caption
    assert batch.header == ("layer", "batch 1", "batch 2") and "shape 3×4×4" in batch.caption
    memory = made_tables[4]
    assert grid(memory)["conv1x1"]["3×4×4"] == "5.3 / 5.3 / 5.3"  # 4096 bytes of 4 * 4 * 48
    assert grid(memory)["<script>"]["3×8×8"] == "unsupported [1]"
    assert "<script>: side 8 is even" in memory.notes[0]


def test_unstable_times_are_marked_and_explained(runtime_run):
    records = runtime_run[1]
    records[0].rows[0]["iqr_ms"] = 0.2
    records[2].rows[0].update(drift=-0.2, cpu_share=0.5)
    table = made(runtime_run)[0]
    assert list(grid(table)["conv1x1"].values())[1:4] == ["0.250 (0.200) †", "0.500 (0.010)", "1.00 (0.010) †"]
    assert table.notes[1].startswith("† unstable: the interquartile range exceeds 25% of the median")


def test_remarks_of_a_layer_are_notes_of_the_table_of_times(runtime_run):
    row = runtime_run[1][0].rows[0]
    row["remark"] = "cut into parts"
    table, *others = made(runtime_run)
    assert any(note.startswith(row["layer"]) and note.endswith(": cut into parts") for note in table.notes)
    assert not any("cut into parts" in note for other in others for note in other.notes)


def test_the_caption_states_that_rounds_ended_early(runtime_run):
    assert "fewer" not in made(runtime_run)[0].caption
    runtime_run[1][0].rows[0]["rounds"] = 4
    assert "5 samples, fewer where they took more than 60 s" in made(runtime_run)[0].caption


@pytest.mark.parametrize(
    ("value", "text"), [(0.00123, "0.001"), (0.5, "0.500"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1234")]
)
def test_milliseconds_are_rounded(value, text):
    assert milliseconds(value) == text


def test_data_sets_with_different_widths_have_separate_tables(parameters_run, replanned):
    """Each table shows the widths of its data set and the published counts of its width."""
    values = {"conv1x1": {"width": 64, "mimic": 6400, "other": 1600}}
    published = parameters_run[0].published.model_copy(update={"values": values, "widths": {"other": 16}})
    changes = {"columns": ("mimic", "other"), "published": published}
    run = replanned(parameters_run, lambda trial: {"label": "other"} if trial.flow.width == 16 else {}, **changes)
    tables = made(run)
    extra, mimic = (grid(table)["conv1x1"] for table in tables)
    assert [table.name.rpartition("-")[2] for table in tables] == ["other", "mimic"]
    assert [name for name in extra if name.startswith("width")] == ["width 16", "width 16, unmasked"]
    assert [name for name in mimic if name.startswith("width")] == ["width 64", "width 64, unmasked"]
    assert (mimic["published"], mimic["at width"], mimic["equal"]) == ("6,400", "64", "yes")
    assert (extra["published"], extra["at width"], extra["equal"]) == ("1,600", "16", "yes")


def test_the_parameters_table_compares_with_published_counts(parameters_run):
    (table,) = made(parameters_run)
    assert table.header == (
        "layer",
        "width 16",
        "width 64",
        "width 16, unmasked",
        "width 64, unmasked",
        "published",
        "at width",
        "equal",
    )
    assert table.rows[0] == ("conv1x1", "1,600", "6,400", "1,440", "5,760", "6,400", "64", "yes")
    assert table.rows[1][-3:] == ("15,280", "16", "no")
    assert table.rows[2][-3:] == ("–", "–", "–")
    assert "published: A Paper (2022)" in table.notes


def test_times_say_whether_they_are_of_kernels_or_of_plain_pytorch(runtime_run, density_run):
    plan, records = runtime_run
    for record in records:
        record.environment = {"backend": "cpp", "kernels": {"build": "b"}}
        for row in record.rows:
            row["backend"] = "cpp" if row["layer"] == "conv1x1" else "torch"
    table = made((plan, records))[0]
    assert table.notes[-1] == "compiled kernels: conv1x1; the others are plain PyTorch" and "¶" not in markdown(table)
    records[0].environment = {"backend": "torch", "kernels": {"reason": "no compiler"}}
    table = made((plan, records))[0]
    assert "¶ plain PyTorch, as there were no compiled kernels: no compiler" in table.notes
    assert table.rows[0][1].endswith(" ¶") and "¶" not in table.rows[0][2] and r"\P{}" in latex(table)
    records[0].environment["kernels"]["reason"] = "no layer asked for a kernel"
    assert "¶" not in markdown(made((plan, records))[0])
    plan, records = density_run
    for record in records[-2:]:
        record.environment = {"backend": "torch", "kernels": {"reason": "no compiler"}}
    assert grid(made((plan, records))[3])["conv1x1"]["forward, ms, digits"].endswith(" ¶")


def test_the_status_line_counts_trials_by_status(runtime_run):
    plan, records = runtime_run
    records[0].rows[0]["status"] = "unsupported"
    records[0].rows[1]["status"] = "oom"
    records[0].rows[2]["status"] = "unsupported"
    assert ReportedResults.of(plan, records).status_line == "5 trials: 3 ok, 1 oom, 1 unsupported"
    assert ReportedResults.of(plan, records[:1]).status_line == "5 trials: 0 ok, 4 missing, 1 oom"
