#include <tessera/data/loader.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizer.h>
#include <tessera/data/transforms.h>

namespace tessera {

SourceRegistry& sources() {
  static SourceRegistry registry = [] {
    SourceRegistry list("source");
    return list;
  }();
  return registry;
}

TokenizerRegistry& tokenizers() {
  static TokenizerRegistry registry = [] {
    TokenizerRegistry list("tokenizer");
    return list;
  }();
  return registry;
}

}  // namespace tessera
