// Expands brace patterns in path lists.
#include "src/data/formats/paths.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>

namespace tessera::fuzz {

void fuzz_paths(std::string_view input) {
  allowing<UserError>([&] {
    require(!expand_braces(std::string(input)).empty(), "paths: no name is returned");
  });
}

}  // namespace tessera::fuzz
