#include "kernels/roi_align/roi_align.h"

#include <string>

#include "kernels/roi_align/axis.h"

namespace tessera::kernels {
namespace {

Status wrong(const std::string& what) {
  return Status::failure("roi_align: " + what);
}

struct Size {
  const char* name;
  std::int64_t value, least, most;
};

struct Named {
  const char* name;
  const void* pointer;
};

Status check_problem(const RoiAlignProblem& p) {
  constexpr std::int64_t kMost = 1 << 30;
  for (const Size& size :
       {Size{"boxes", p.boxes, 0, kMost}, Size{"images", p.images, 1, kMost}, Size{"height", p.height, 1, kMost},
        Size{"width", p.width, 1, kMost}, Size{"channels", p.channels, 1, kMost},
        Size{"bin_rows", p.bin_rows, 1, kMost}, Size{"bin_columns", p.bin_columns, 1, kMost}}) {
    if (size.value < size.least || size.value > size.most)
      return wrong(std::string(size.name) + " must be in " + std::to_string(size.least) + ".." +
                   std::to_string(size.most) + ", but is " + std::to_string(size.value));
  }
  return {};
}

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

Status check(const RoiAlignForward& a) {
  if (Status status = check_problem(a.problem); !status.ok() || a.problem.boxes == 0) return status;
  return present(Named{"corners", a.problem.corners}, Named{"image", a.problem.image}, Named{"features", a.features},
                 Named{"out", a.out}, Named{"workspace", a.workspace});
}

Status check(const RoiAlignBackward& a) {
  if (Status status = check_problem(a.problem); !status.ok()) return status;
  const Status status = present(Named{"first", a.first}, Named{"of_features", a.of_features});
  if (!status.ok() || a.problem.boxes == 0) return status;
  return present(Named{"corners", a.problem.corners}, Named{"order", a.order}, Named{"gradient", a.gradient},
                 Named{"workspace", a.workspace});
}

std::size_t roi_align_workspace(const RoiAlignProblem& p) {
  const std::int64_t weights = p.bin_rows * p.height + p.bin_columns * p.width, bins = p.bin_rows + p.bin_columns;
  return static_cast<std::size_t>(p.boxes) *
         (static_cast<std::size_t>(weights) * sizeof(float) + static_cast<std::size_t>(bins) * sizeof(CellRange));
}

}  // namespace tessera::kernels
