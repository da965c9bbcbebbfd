#include "kernels/text_pool/text_pool.h"

#include <string>

namespace tessera::kernels {
namespace {

Status wrong(const std::string& what) {
  return Status::failure("text_conditioned_pool: " + what);
}

Status sizes(std::int64_t rows, const char* name, std::int64_t columns) {
  if (rows < 0) return wrong("rows must be at least 0, but is " + std::to_string(rows));
  if (columns < 1) return wrong(std::string(name) + " must be at least 1, but is " + std::to_string(columns));
  return {};
}

struct Named {
  const char* name;
  const void* pointer;
};

template <class... Pointers>
Status present(const Pointers&... named) {
  Status result;
  const auto look = [&](const Named& each) {
    if (result.ok() && each.pointer == nullptr) result = wrong(std::string(each.name) + " is a null pointer");
  };
  (look(named), ...);
  return result;
}

}  // namespace

Status check(const PatchSoftmax& a) {
  if (Status status = sizes(a.rows, "patches", a.patches); !status.ok() || a.rows == 0) return status;
  return present(Named{"scores", a.scores});
}

Status check(const PatchSoftmaxBackward& a) {
  if (Status status = sizes(a.rows, "patches", a.patches); !status.ok() || a.rows == 0) return status;
  return present(Named{"weights", a.weights}, Named{"gradient", a.gradient});
}

Status check(const PooledPairs& a) {
  if (Status status = sizes(a.rows, "width", a.width); !status.ok() || a.rows == 0) return status;
  return present(Named{"pooled", a.pooled}, Named{"text", a.text}, Named{"labels", a.labels}, Named{"scale", a.scale},
                 Named{"bias", a.bias}, Named{"losses", a.losses});
}

}  // namespace tessera::kernels
