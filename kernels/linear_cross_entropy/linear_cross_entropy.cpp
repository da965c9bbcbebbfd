#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include "kernels/argument_check.h"

namespace tessera::kernels {

Status check(const CrossEntropyTile& arguments) {
  ArgumentCheck found("linear_cross_entropy");
  found.at_least("rows", 0, arguments.rows).at_least("columns", 1, arguments.columns).at_least("places", 1, arguments.places);
  found.long_enough("the tile", arguments.row_pitch(), arguments.columns);
  if (!found.ok() || arguments.rows == 0) return found.status();
  found.present("logits", arguments.logits).present("targets", arguments.targets).present("losses", arguments.losses);
  return found.status();
}

}  // namespace tessera::kernels
