from matplotlib.figure import Figure

HEADING = "Entries"
ORDER = 1


def figures(results):
    figure = Figure()
    figure.subplots().bar(results.frame["layer"], results.frame["entries"].fillna(0))
    return {"entries": figure}
