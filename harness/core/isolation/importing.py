"""Stop the search for garbage; imported for this effect, first, in the fork server, whose imports leave none.

The search takes an eighth of the time of the imports. A process that the server starts turns it on again.
"""

import gc

gc.disable()
