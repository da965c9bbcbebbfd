// The input is YAML text, optionally followed by a line "%%" and --set overrides. Parses the input, writes the result and reads it back.
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>

namespace tessera::fuzz {
namespace {

using config::Node;

bool same(const Node& a, const Node& b) {
  if (a.kind() != b.kind() || a.text() != b.text()) return false;
  if (a.items().size() != b.items().size() || a.members().size() != b.members().size()) return false;
  for (std::size_t i = 0; i < a.items().size(); ++i)
    if (!same(a.items()[i], b.items()[i])) return false;
  for (std::size_t i = 0; i < a.members().size(); ++i)
    if (a.members()[i].first != b.members()[i].first || !same(a.members()[i].second, b.members()[i].second))
      return false;
  return true;
}

}  // namespace

void fuzz_yaml(std::string_view input) {
  const std::size_t mark = input.find("\n%%\n");
  const std::string_view text = input.substr(0, mark);
  const std::string_view overrides = mark == std::string_view::npos ? std::string_view() : input.substr(mark + 4);
  allowing<UserError>([&] {
    Node node = config::parse_yaml(std::string(text), "a.yaml");
    if (!overrides.empty())
      for (const std::string& line : split(overrides, '\n')) config::apply_override(node, line);
    const std::string out = config::to_yaml(node);
    Node back;
    try {
      back = config::parse_yaml(out, "out.yaml");
    } catch (const UserError& error) {
      broken(concat("yaml: what is written cannot be read: ", error.what(), ":\n", out));
    }
    if (!same(node, back)) broken("yaml: what is written reads back differently:\n" + out);
  });
}

}  // namespace tessera::fuzz
