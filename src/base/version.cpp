#include "tessera_commit.h"
#include <tessera/base/version.h>

namespace tessera {

std::string version() {
  return TESSERA_VERSION;
}

std::string commit() {
  return TESSERA_COMMIT;
}

std::string version_line() {
  return "Tessera " + version() + " (" + commit() + ")";
}

}  // namespace tessera
