// Resolves configurations. The settings in the input are merged over a complete configuration. The input's lines after "%%" are --set
// overrides.
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/training/config/config.h>

namespace tessera::fuzz {
namespace {

using config::Node;

const Node& base() {
  static const Node node = config::load_yaml(TESSERA_SOURCE_DIR "/configs/shapes/sparc.yaml");
  return node;
}

}  // namespace

void fuzz_config(std::string_view input) {
  const std::size_t mark = input.find("\n%%\n");
  const std::string_view overrides = mark == std::string_view::npos ? std::string_view() : input.substr(mark + 4);
  allowing<UserError>([&] {
    Node tree = base();
    tree.merge(config::parse_yaml(std::string(input.substr(0, mark)), "a.yaml"));
    if (!overrides.empty())
      for (const std::string& line : split(overrides, '\n')) config::apply_override(tree, line);
    const std::string resolved = to_yaml(resolve_config(tree, "fuzz"));
    std::string again;
    try {
      again = to_yaml(resolve_config(config::parse_yaml(resolved, "resolved.yaml"), "fuzz"));
    } catch (const UserError& error) {
      broken(concat("config: what is written cannot be read: ", error.what(), ":\n", resolved));
    }
    if (again != resolved) broken("config: what is written reads back differently:\n" + resolved);
  });
}

}  // namespace tessera::fuzz
