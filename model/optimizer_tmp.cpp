#include "model/optimizer.h"
#include <cmath>
namespace penstock::model { namespace {
class Tmp final : public Optimizer { public: Tmp(OptimizerKind k):k_(k){} std::string_view name() const override {return "tmp";}
 std::vector<std::string> state_names(const OptimizerOptions& o) const override { if(k_==OptimizerKind::kAdam) return {"exp_avg","exp_avg_sq"}; if(o.momentum!=0) return {"momentum_buffer"}; return {}; }
 void update(tensor::Context&, tensor::Tensor& p, const tensor::Tensor& g, std::span<tensor::Tensor> st, const OptimizerOptions& o, std::int64_t t, double gs) const override {
  auto P=p.span<float>(); auto G=g.span<float>();
  for(size_t i=0;i<P.size();++i){ double gr=G[i]*gs, w=P[i];
   if(k_==OptimizerKind::kSgd){ gr+=o.weight_decay*w; if(o.momentum!=0){ auto B=st[0].span<float>(); B[i]= t==1? gr: o.momentum*B[i]+gr; gr=B[i];} w-=o.lr*gr; }
   else { if(o.adam_w_mode) w-=o.lr*o.weight_decay*w; else gr+=o.weight_decay*w; auto M=st[0].span<float>(),V=st[1].span<float>(); M[i]=o.beta1*M[i]+(1-o.beta1)*gr; V[i]=o.beta2*V[i]+(1-o.beta2)*gr*gr; double mh=M[i]/(1-std::pow(o.beta1,t)),vh=V[i]/(1-std::pow(o.beta2,t)); w-=o.lr*mh/(std::sqrt(vh)+o.eps);} P[i]=w; } }
 OptimizerKind k_; }; }
std::unique_ptr<Optimizer> make_optimizer(OptimizerKind k){return std::make_unique<Tmp>(k);} }
