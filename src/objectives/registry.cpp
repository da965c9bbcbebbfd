#include <tessera/objectives/objective.h>

namespace tessera {

ObjectiveRegistry& objectives() {
  static ObjectiveRegistry registry = [] {
    ObjectiveRegistry list("objective");
    return list;
  }();
  return registry;
}

}  // namespace tessera
