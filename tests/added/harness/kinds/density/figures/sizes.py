from matplotlib.figure import Figure

HEADING = "Sizes"
ORDER = 20


def figures(results):
    figure = Figure()
    frame = results.of_kind("density")
    figure.subplots().bar(frame["layer"], frame["parameters"].fillna(0))
    return {"sizes": figure}
