#include "kernels/roi_align/roi_align.h"

#include "kernels/argument_check.h"
#include "kernels/roi_align/axis.h"

namespace tessera::kernels {
namespace {

struct Size {
  const char* name;
  std::int64_t value, least;
};

ArgumentCheck check_problem(const RoiAlignProblem& p) {
  constexpr std::int64_t kMost = 1 << 30;
  ArgumentCheck found("roi_align");
  for (const Size& size :
       {Size{"boxes", p.boxes, 0}, Size{"images", p.images, 1}, Size{"height", p.height, 1}, Size{"width", p.width, 1},
        Size{"channels", p.channels, 1}, Size{"bin_rows", p.bin_rows, 1}, Size{"bin_columns", p.bin_columns, 1}})
    found.require(size.value >= size.least && size.value <= kMost, size.name,
                  " must be in " + std::to_string(size.least) + ".." + std::to_string(kMost) + ", but is " +
                      std::to_string(size.value));
  return found;
}

}  // namespace

Status check(const RoiAlignForward& a) {
  ArgumentCheck found = check_problem(a.problem);
  if (!found.ok() || a.problem.boxes == 0) return found.status();
  found.present("corners", a.problem.corners).present("image", a.problem.image).present("features", a.features);
  found.present("out", a.out).present("workspace", a.workspace);
  return found.status();
}

Status check(const RoiAlignBackward& a) {
  ArgumentCheck found = check_problem(a.problem);
  found.present("first", a.first).present("of_features", a.of_features);
  if (!found.ok() || a.problem.boxes == 0) return found.status();
  found.present("corners", a.problem.corners).present("order", a.order).present("gradient", a.gradient);
  found.present("workspace", a.workspace);
  return found.status();
}

std::size_t roi_align_workspace(const RoiAlignProblem& p) {
  const std::int64_t weights = p.bin_rows * p.height + p.bin_columns * p.width, bins = p.bin_rows + p.bin_columns;
  return static_cast<std::size_t>(p.boxes) *
         (static_cast<std::size_t>(weights) * sizeof(float) + static_cast<std::size_t>(bins) * sizeof(CellRange));
}

}  // namespace tessera::kernels
