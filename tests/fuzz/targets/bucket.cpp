// Reads listings of buckets.
#include "src/remote/client.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>

namespace tessera::fuzz {

void fuzz_bucket(std::string_view input) {
  allowing<UserError>([&] {
    std::size_t bytes = 0;
    for (const auto& [key, state] : remote::parse_listing(std::string(input)).objects) bytes += key.size() + state.version.size();
    require(bytes <= input.size(), "bucket: more text than the listing has");
  });
}

}  // namespace tessera::fuzz
