#include <tessera/models/registry.h>

namespace tessera {

EncoderRegistry& encoders() {
  static EncoderRegistry registry = [] {
    EncoderRegistry list("encoder");
    return list;
  }();
  return registry;
}

ReadOutRegistry& readouts() {
  static ReadOutRegistry registry = [] {
    ReadOutRegistry list("read-out");
    return list;
  }();
  return registry;
}

}  // namespace tessera
