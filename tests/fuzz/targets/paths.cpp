// Expands brace patterns in path lists.
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/data/formats/paths.h>

namespace tessera::fuzz {

void fuzz_paths(std::string_view input) {
  allowing<UserError>([&] {
    require(!expand_braces(std::string(input)).empty(), "paths: no name is returned");
  });
}

}  // namespace tessera::fuzz
