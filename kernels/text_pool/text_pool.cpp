#include "kernels/text_pool/text_pool.h"

#include "kernels/argument_check.h"

namespace tessera::kernels {
namespace {

ArgumentCheck check_sizes(std::int64_t rows, const char* name, std::int64_t columns) {
  ArgumentCheck found("text_conditioned_pool");
  found.at_least("rows", 0, rows).at_least(name, 1, columns);
  return found;
}

}  // namespace

Status check(const PatchSoftmax& a) {
  ArgumentCheck found = check_sizes(a.rows, "patches", a.patches);
  if (a.rows > 0) found.present("scores", a.scores);
  return found.status();
}

Status check(const PatchSoftmaxBackward& a) {
  ArgumentCheck found = check_sizes(a.rows, "patches", a.patches);
  if (a.rows > 0) found.present("weights", a.weights).present("gradient", a.gradient);
  return found.status();
}

Status check(const PooledPairs& a) {
  ArgumentCheck found = check_sizes(a.rows, "width", a.width);
  if (!found.ok() || a.rows == 0) return found.status();
  found.present("pooled", a.pooled).present("text", a.text).present("labels", a.labels);
  found.present("scale", a.scale).present("bias", a.bias).present("losses", a.losses);
  return found.status();
}

}  // namespace tessera::kernels
