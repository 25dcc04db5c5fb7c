// Lets an installed program find torch's libraries. A build folder's engine knows the path of its own torch.
#pragma once

namespace titan {

// Sets the environment so that a program started from here on finds torch: LD_LIBRARY_PATH, and TITAN_TORCH with
// torch's folder (…/site-packages/torch). torch is the one that TITAN_TORCH names, that of the Python that TITAN_PYTHON
// names, the one that lies beside this program's package, or that of the environment's python3, in this order. Only the
// last and TITAN_PYTHON start a Python.
//
// Returns true if the environment changed, so that this process cannot load torch before it is started anew. Throws
// ConfigError if there is no torch, or one of another version than the program was built for; Error if this process has
// been started anew and does not see what was set.
bool use_installed_torch();

}  // namespace titan
