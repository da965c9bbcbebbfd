#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/readouts/groups.h"
#include <tessera/base/error.h>

namespace tessera {

GroupsReadOut::GroupsReadOut(const GroupsReadOutSettings& settings, const ReadOutContext& context)
    : settings_(settings),
      head_(register_module("head", std::make_shared<MlpHead>(settings, context.width, settings.output_dim))) {}

ReadOutOutput GroupsReadOut::forward(const Encoded& encoded, const ViewNeeds& needs) {
  const at::Tensor groups = at_least_float(encoded.tokens);
  if (encoded.mask.defined())
    user_error("model: readout groups: the encoder's tokens have padding: choose gap, or an encoder that returns groups");
  ReadOutOutput out;
  if (settings_.pool == "before") {
    out.embedding = head_->forward(groups.mean(1));
    if (needs.slots) out.slots = head_->forward(groups);
  } else {
    const at::Tensor projected = head_->forward(groups);
    out.embedding = projected.mean(1);
    if (needs.slots) out.slots = projected;
  }
  if (needs.attention) out.attention = encoded.attention;
  return out;
}

}  // namespace tessera
