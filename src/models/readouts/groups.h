#pragma once

#include <memory>
#include <string>

#include "src/models/mlp_head.h"
#include <tessera/models/registry.h>

namespace tessera {

struct GroupsReadOutSettings : MlpHeadSettings {
  std::int64_t output_dim = 256;
  std::string pool = "after";
};

template <class Visitor>
void fields(Visitor& v, GroupsReadOutSettings& s) {
  v("output_dim", s.output_dim, "width of the embedding", config::at_least(1));
  fields(v, static_cast<MlpHeadSettings&>(s));
  v("pool", s.pool, "after: the mean of the projected groups; before: the projection of the groups' mean (GroupViT)",
    config::one_of({"after", "before"}));
}

/// `groups`: projects the groups of an encoder (groupvit, text_group_encoder) with the read-out's head, `head.*`, and pools them. The tower
/// has `projection: none`. The read-out's slots are the projected groups [B, K, output_dim]. The attention comes from the encoder and is
/// the weight of each patch or word in each group.
class GroupsReadOut : public ReadOut {
 public:
  GroupsReadOut(const GroupsReadOutSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  std::int64_t output_width() const override { return settings_.output_dim; }

 private:
  GroupsReadOutSettings settings_;
  std::shared_ptr<MlpHead> head_;
};

}  // namespace tessera
