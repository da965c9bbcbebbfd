#include <tessera/data/loader.h>
#include <tessera/data/shapes.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizer.h>
#include <tessera/data/transforms.h>

namespace tessera {

SourceRegistry& sources() {
  static SourceRegistry registry = [] {
    SourceRegistry list("source");
    list.add<ShapesSettings>("shapes", "built-in procedural pictures of coloured shapes, fully annotated; needs no files",
                             [](const ShapesSettings& settings) { return std::make_shared<ShapesSource>(settings); });
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
