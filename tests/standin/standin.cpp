// A stand-in accelerator for tests: torch's PrivateUse1 backend over host memory. README.md says what is real in it and what is not.
#include <torch/extension.h>

#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

using Tensor = at::Tensor;
using IValue = c10::IValue;
constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr int DEVICES = 2;
constexpr int64_t GONE = 64 << 20;

// -- the queues --------------------------------------------------------------------------------------

struct Queue { // of a stream: a thread that does one thing after the other, behind the program
  std::mutex lock;
  std::condition_variable moved;
  std::deque<std::pair<bool, std::function<void()>>> tasks; // whether it takes its time
  int64_t pushed = 0, done = 0, allowed = 0; // held back, it does not go beyond what somebody waits for
  bool stopping = false;
  std::thread worker;
};
struct State {
  std::recursive_mutex lock; // what is released under it may be memory of ours
  std::map<std::string, int64_t> counts;
  std::map<std::pair<int, int64_t>, std::unique_ptr<Queue>> queues;
  std::map<const void*, size_t> pinned;
  std::map<const void*, std::vector<std::pair<Queue*, int64_t>>> users; // of memory, in other streams than its own
  std::atomic<double> delay{0}; // microseconds
  std::atomic<bool> hold{false}, sticky{false}, over{false};
  std::string error, fail_at;
  int64_t streams = 0;
  struct { int64_t used = 0, peak = 0, limit = int64_t(1) << 50, total = 0, count = 0; } memory[DEVICES];
  std::deque<std::pair<void*, int64_t>> gone; // memory that was given back: whoever still reads it reads NaN, and does not crash
  int64_t gone_bytes = 0;
  PyObject* listener = nullptr;
  std::atomic<bool> capturing{false};
  std::vector<std::function<void()>> captured; // launches since the capture began, which are made when the graph is replayed
  Tensor random[DEVICES]; // states of the devices' generators
};
static State& state() { static auto* found = new State; return *found; }
static thread_local int device_now = 0;
static thread_local int64_t stream_now[DEVICES] = {};

static double now() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static void count(const char* what, int64_t amount = 1) { std::lock_guard g(state().lock); state().counts[what] += amount; }
static void failed(const std::string& why) { std::lock_guard g(state().lock); if (state().error.empty()) state().error = why; }

static void work(Queue& q) {
  at::AutoDispatchBelowADInplaceOrView guard; // values only
  for (;;) {
    std::unique_lock l(q.lock);
    q.moved.wait(l, [&] { return q.stopping || (!q.tasks.empty() && (!state().hold || q.done < q.allowed)); });
    if (q.tasks.empty()) return;
    auto [timed, task] = std::move(q.tasks.front());
    q.tasks.pop_front();
    l.unlock();
    double delay = state().delay;
    if (timed && delay > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(delay));
    try { task(); } catch (const std::exception& problem) { failed(problem.what()); }
    task = nullptr; // what it holds may be Python's
    l.lock();
    q.done++;
    l.unlock();
    q.moved.notify_all();
  }
}
static Queue& queue(int device, int64_t stream) {
  std::lock_guard g(state().lock);
  auto& found = state().queues[{device, stream}];
  if (!found) { found = std::make_unique<Queue>(); auto* q = found.get(); q->worker = std::thread([q] { work(*q); }); }
  return *found;
}
static Queue& current(int device) { return queue(device, stream_now[device]); }
static void allowed(const char* what) { // as on CUDA, the capture is spoilt by what it cannot take down
  TORCH_CHECK(!state().capturing, "standin error: operation not permitted when stream is capturing: ", what);
}
static int64_t push(Queue& q, std::function<void()> task, bool timed = true) {
  int64_t number;
  { std::lock_guard l(q.lock); q.tasks.emplace_back(timed, std::move(task)); number = ++q.pushed; }
  q.moved.notify_all();
  return number;
}
static void reach(Queue& q, int64_t number) { // until so much of it is done
  std::optional<py::gil_scoped_release> free;
  if (!state().over && PyGILState_Check()) free.emplace();
  std::unique_lock l(q.lock);
  q.allowed = std::max(q.allowed, number);
  q.moved.notify_all();
  q.moved.wait(l, [&] { return q.done >= number; });
}
static int64_t last(Queue& q) { std::lock_guard l(q.lock); return q.pushed; }
static bool reached(Queue& q, int64_t number) { std::lock_guard l(q.lock); return q.done >= number; }

static void wait_for(Queue& q, int64_t number, const char* what) { // the program waits: errors surface here
  allowed(what);
  auto& s = state();
  PyObject* listener = nullptr;
  { std::lock_guard g(s.lock); s.counts["synchronisations"]++; s.counts[what]++; listener = s.listener; }
  if (listener) { py::gil_scoped_acquire gil; py::handle heard(listener); heard(what); }
  reach(q, number);
  std::lock_guard g(s.lock);
  if (!s.error.empty()) {
    std::string said = s.error;
    if (!s.sticky) s.error.clear();
    TORCH_CHECK(false, "standin error: device-side assert triggered\n", said, "\nstandin kernel errors might be asynchronously reported at some other call, so the stack trace might be incorrect.");
  }
}
static void wait_for_all(int device, const char* what) {
  allowed(what);
  std::vector<Queue*> found;
  { std::lock_guard g(state().lock); for (auto& [key, q] : state().queues) if (key.first == device) found.push_back(q.get()); }
  for (auto* q : found) reach(*q, last(*q));
  wait_for(current(device), 0, what);
}
static int64_t launch(int device, std::function<void()> task, const char* what = "launches") { // something more for the current stream
  if (state().capturing) { std::lock_guard g(state().lock); state().captured.push_back(std::move(task)); return 0; }
  count(what);
  return push(current(device), std::move(task));
}
static void stop() { // at the end of the program
  std::vector<Queue*> found;
  { std::lock_guard g(state().lock); for (auto& [key, q] : state().queues) found.push_back(q.get()); }
  state().hold = false;
  py::gil_scoped_release free;
  for (auto* q : found) { { std::lock_guard l(q->lock); q->stopping = true; } q->moved.notify_all(); }
  for (auto* q : found) if (q->worker.joinable()) q->worker.join();
  state().over = true;
}

// -- memory ------------------------------------------------------------------------------------------

struct Alloc final : c10::DeviceAllocator {
  static int64_t rounded(size_t n) { return (int64_t(n) + 511) / 512 * 512; } // as CUDA's allocator does
  static void release(void* p) {
    if (!p || state().capturing) return; // a graph's memory is its own
    auto* head = (int64_t*)((char*)p - 64);
    std::vector<std::pair<Queue*, int64_t>> users;
    {
      std::lock_guard g(state().lock);
      auto& m = state().memory[head[1]];
      m.used -= head[0]; m.count--;
      auto it = state().users.find(p);
      if (it != state().users.end()) { users = std::move(it->second); state().users.erase(it); }
    }
    auto gone = [head, users = std::move(users)] { // in the order of its own stream, as CUDA's allocator does; what comes too late reads NaN
      for (auto& [q, number] : users) reach(*q, number);
      memset((char*)head + 64, 0xff, head[0]);
      std::lock_guard g(state().lock);
      auto& s = state();
      s.gone.emplace_back(head, head[0]);
      s.gone_bytes += head[0];
      while (s.gone_bytes > GONE) { s.gone_bytes -= s.gone.front().second; free(s.gone.front().first); s.gone.pop_front(); }
    };
    if (state().over) gone(); else push(queue(head[1], head[2]), gone, false);
  }
  c10::DataPtr allocate(size_t n) override {
    int d = device_now;
    c10::Device device(KIND, d);
    if (!n) return {nullptr, nullptr, &release, device};
    int64_t size = rounded(n);
    {
      std::lock_guard g(state().lock);
      auto& m = state().memory[d];
      if (m.used + size > m.limit)
        TORCH_CHECK_WITH(OutOfMemoryError, false, "standin out of memory. Tried to allocate ", n, " bytes. standin:", d, " has a total capacity of ", m.limit, " bytes of which ", m.limit - m.used, " bytes is free.");
      m.used += size; m.total += size; m.count++;
      m.peak = std::max(m.peak, m.used);
    }
    auto* head = (int64_t*)aligned_alloc(64, size + 64);
    head[0] = size; head[1] = d; head[2] = stream_now[d];
    void* p = (char*)head + 64;
    return {p, p, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t n) const override { memcpy(to, from, n); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& p, c10::Stream s) override {
    auto& q = queue(s.device_index(), s.id());
    std::lock_guard g(state().lock);
    state().users[p.get()].emplace_back(&q, last(q));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex d) override {
    std::lock_guard g(state().lock);
    auto& m = state().memory[d];
    c10::CachingDeviceAllocator::DeviceStats found;
    auto set = [](auto& stat, int64_t current, int64_t peak, int64_t total) { stat[0].current = current; stat[0].peak = peak; stat[0].allocated = total; stat[0].freed = total - current; };
    set(found.allocated_bytes, m.used, m.peak, m.total); set(found.reserved_bytes, m.used, m.peak, m.total); set(found.active_bytes, m.used, m.peak, m.total);
    set(found.allocation, m.count, m.count, m.count);
    return found;
  }
  void resetAccumulatedStats(c10::DeviceIndex d) override { state().memory[d].total = state().memory[d].used; }
  void resetPeakStats(c10::DeviceIndex d) override { state().memory[d].peak = state().memory[d].used; }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex d) override { auto& m = state().memory[d]; return {m.limit - m.used, m.limit}; }
};
static Alloc alloc_;
REGISTER_ALLOCATOR(KIND, &alloc_);

struct Pinned final : c10::Allocator {
  static void release(void* p) { { std::lock_guard g(state().lock); state().pinned.erase(p); } free(p); }
  c10::DataPtr allocate(size_t n) override {
    void* p = aligned_alloc(64, (std::max<size_t>(n, 1) + 63) / 64 * 64);
    std::lock_guard g(state().lock);
    state().pinned[p] = std::max<size_t>(n, 1);
    return {p, p, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t n) const override { memcpy(to, from, n); }
};
static Pinned pinned_;
static bool is_pinned(const void* p) {
  std::lock_guard g(state().lock);
  auto& known = state().pinned;
  auto it = known.upper_bound(p);
  return it != known.begin() && (--it, (const char*)p < (const char*)it->first + it->second);
}

// -- streams and events ------------------------------------------------------------------------------

struct Event { Queue* queue = nullptr; int64_t number = 0; std::shared_ptr<std::atomic<double>> time; };

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = KIND;
  static c10::Device at(int d) { return {KIND, c10::DeviceIndex(d)}; }
  static int of(c10::Device d) { return d.index() < 0 ? device_now : d.index(); }
  c10::DeviceType type() const override { return KIND; }
  c10::Device exchangeDevice(c10::Device d) const override { int was = device_now; device_now = of(d); return at(was); }
  c10::Device getDevice() const override { return at(device_now); }
  void setDevice(c10::Device d) const override { TORCH_CHECK(d.index() < DEVICES, "standin has ", DEVICES, " devices"); device_now = of(d); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { device_now = of(d); }
  c10::Stream make(int d, int64_t id) const { return c10::Stream(c10::Stream::UNSAFE, at(d), id); }
  c10::Stream getStream(c10::Device d) const override { return make(of(d), stream_now[of(d)]); }
  c10::Stream getDefaultStream(c10::Device d) const override { return make(of(d), 0); }
  c10::Stream getNewStream(c10::Device d, int) const override { std::lock_guard g(state().lock); return make(of(d), ++state().streams); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getNewStream(d, 0); }
  c10::Stream exchangeStream(c10::Stream s) const override { int d = of(s.device()); auto was = make(d, stream_now[d]); stream_now[d] = s.id(); return was; }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }
  void record(void** event, const c10::Stream& s, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    auto& e = *(Event*)*event;
    if (state().capturing) { e.queue = nullptr; return; }
    e.queue = &queue(of(s.device()), s.id());
    e.time = std::make_shared<std::atomic<double>>(0);
    e.number = push(*e.queue, [time = e.time] { *time = now(); }, false);
    count("events");
  }
  void block(void* event, const c10::Stream& s) const override {
    if (!event) return;
    auto e = *(Event*)event;
    auto& q = queue(of(s.device()), s.id());
    if (e.queue && e.queue != &q) push(q, [e] { reach(*e.queue, e.number); }, false);
  }
  bool queryEvent(void* event) const override {
    allowed("queryEvent");
    count("queries");
    auto* e = (Event*)event;
    return !e || !e->queue || reached(*e->queue, e->number);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete (Event*)event; }
  void synchronizeEvent(void* event) const override { auto* e = (Event*)event; if (e && e->queue) wait_for(*e->queue, e->number, "event_waits"); }
  bool queryStream(const c10::Stream& s) const override { allowed("queryStream"); count("queries"); auto& q = queue(of(s.device()), s.id()); return reached(q, last(q)); }
  void synchronizeStream(const c10::Stream& s) const override { auto& q = queue(of(s.device()), s.id()); wait_for(q, last(q), "stream_waits"); }
  void synchronizeDevice(const c10::DeviceIndex d) const override { wait_for_all(d < 0 ? device_now : d, "device_waits"); }
  double elapsedTime(void* a, void* b, const c10::DeviceIndex) const override { return (*((Event*)b)->time - *((Event*)a)->time) * 1e-3; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// -- tensors -----------------------------------------------------------------------------------------

static Tensor host(const Tensor& t) { // the same memory, seen as a CPU tensor
  auto options = at::TensorOptions().dtype(t.dtype());
  if (t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), options);
  auto seen = at::from_blob(t.data_ptr(), t.sizes(), t.strides(), options);
  seen._set_conj(t.is_conj());
  seen._set_neg(t.is_neg());
  return seen;
}
static bool mine(const Tensor& t) { return t.defined() && t.device().type() == KIND; }

struct On { // allocations go to this device
  int before;
  explicit On(int d) : before(device_now) { device_now = d; }
  ~On() { device_now = before; }
};
static int index_of(std::optional<at::Device> d) { return d && d->index() >= 0 ? d->index() : device_now; }

static Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  On on(index_of(device));
  return at::detail::empty_generic(size, &alloc_, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}
static Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  On on(index_of(device));
  return at::detail::empty_strided_generic(size, stride, &alloc_, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}
static Tensor up(const Tensor& made, int device) { // what the CPU has made, in new memory of the device, which nobody else uses yet
  if (!made.defined()) return made;
  auto plain = made.resolve_conj().resolve_neg();
  auto found = empty_strided(plain.sizes(), plain.strides(), plain.scalar_type(), {}, c10::Device(KIND, device), {});
  if (plain.numel()) host(found).copy_(plain);
  return found;
}
static const Tensor& resize_(const Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto wanted = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = self.unsafeGetTensorImpl();
  int64_t n = 1;
  for (auto x : wanted) n *= x;
  size_t need = (n + self.storage_offset()) * self.dtype().itemsize(), has = self.storage().nbytes();
  if (n && need > has) {
    On on(self.device().index());
    auto p = alloc_.allocate(need);
    if (has) push(current(self.device().index()), [to = p.get(), from = self.storage().data(), has] { memcpy(to, from, has); }, false);
    impl->unsafe_storage().set_data_ptr_noswap(std::move(p));
    impl->unsafe_storage().set_nbytes(need);
  }
  impl->set_sizes_contiguous(wanted);
  return self;
}
static Tensor copy_from(const Tensor& self, const Tensor& to, bool non_blocking) {
  int64_t bytes = self.numel() * self.element_size();
  if (mine(self) && mine(to)) {
    int from = self.device().index(), there = to.device().index();
    if (from != there) { auto& q = current(from); auto number = last(q); push(current(there), [&q, number] { reach(q, number); }, false); }
    auto number = launch(there, [a = host(self), b = host(to)] { b.copy_(a); });
    if (from != there) { auto& q = current(there); push(current(from), [&q, number] { reach(q, number); }, false); }
  } else if (mine(to)) {
    int there = to.device().index();
    bool behind = non_blocking && is_pinned(self.data_ptr());
    auto number = launch(there, [a = behind ? self : self.detach().clone(), b = host(to)] { b.copy_(a); }, "copies_to_device");
    count("bytes_to_device", bytes);
    if (!behind) wait_for(current(there), number, "blocking_copies");
  } else {
    int from = self.device().index();
    count("bytes_to_host", bytes);
    if (non_blocking && to.is_contiguous() && bytes && is_pinned(to.data_ptr())) { // not there before somebody has waited
      memset(to.data_ptr(), 0xff, to.numel() * to.element_size());
      launch(from, [a = host(self), b = to] { b.copy_(a); }, "copies_to_host");
    } else {
      count("host_reads");
      auto number = launch(from, [] {}, "copies_to_host");
      wait_for(current(from), number, "blocking_copies");
      to.copy_(host(self));
    }
  }
  return to;
}
static Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) { if (to.sizes() != self.sizes()) to.resize_(self.sizes()); return copy_from(self, to, false); }
static at::Scalar local_scalar(const Tensor& t) {
  count("host_reads");
  count("bytes_to_host", t.element_size());
  auto number = launch(t.device().index(), [] {}, "copies_to_host");
  wait_for(current(t.device().index()), number, "items");
  return at::_local_scalar_dense(host(t));
}

// -- all other ops: the CPU's kernels, counted and queued --------------------------------------------

static const std::set<std::string> ASKS = {"aten::nonzero", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::masked_select", "aten::equal", "aten::bincount", "aten::repeat_interleave", "aten::_assert_async", "aten::is_nonzero"};
// The size of what these give depends on values, so a device has to be waited for.
static const std::set<std::string> FROM_HOST = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index", "aten::set_"};
// Take tensors of the host beside those of the device.

static IValue each(const IValue& value, const std::function<Tensor(const Tensor&)>& change) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<Tensor> found;
    for (const Tensor& t : value.toTensorList()) found.push_back(t.defined() ? change(t) : t);
    return found;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> found;
    for (const std::optional<Tensor>& t : value.toOptionalTensorList()) found.push_back(t && t->defined() ? std::optional<Tensor>(change(*t)) : t);
    return found;
  }
  return value;
}
static std::vector<Tensor> flat(const std::vector<IValue>& values) {
  std::vector<Tensor> found;
  for (auto& value : values) each(value, [&](const Tensor& t) { found.push_back(t); return t; });
  return found;
}
static Tensor seen(const Tensor& t) { return mine(t) ? host(t) : t.detach().clone(); } // as a kernel sees it: host memory as it is at the launch
static Tensor shape_of(const Tensor& t) { return t.dim() || mine(t) ? at::empty_strided(t.sizes(), t.strides(), t.options().device(c10::kMeta)) : t; }
static std::vector<IValue> called(const c10::OperatorHandle& op, const std::vector<IValue>& args, c10::DeviceType type) {
  torch::jit::Stack given;
  for (auto& arg : args) given.push_back(arg.isDevice() ? IValue(c10::Device(type)) : arg);
  op.callBoxed(&given);
  return std::vector<IValue>(given.begin(), given.end());
}
static std::vector<IValue> changed(const std::vector<IValue>& args, const std::function<Tensor(const Tensor&)>& change) {
  std::vector<IValue> found;
  for (auto& arg : args) found.push_back(each(arg, change));
  return found;
}
static Tensor room_for(const Tensor& made, int device) { return empty_strided(made.sizes(), made.strides(), made.scalar_type(), {}, c10::Device(KIND, device), {}); }
static void spoil(const std::vector<Tensor>& views) { for (auto& t : views) if (t.numel()) memset(t.storage().data_ptr().get(), 0xff, t.storage().nbytes()); }
static bool is_written(const c10::FunctionSchema& schema, size_t k, bool argument) {
  auto* alias = (argument ? schema.arguments() : schema.returns())[k].alias_info();
  return alias && alias->isWrite();
}
static void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  size_t n = schema.arguments().size();
  std::vector<IValue> args(stack->end() - n, stack->end());
  stack->erase(stack->end() - n, stack->end());
  std::optional<int> where;
  bool strange = false, writes_only = true;
  for (auto& arg : args)
    each(arg, [&](const Tensor& t) {
      if (mine(t)) {
        TORCH_CHECK(!where || *where == t.device().index() || t.dim() == 0, "Expected all tensors to be on the same device, but found at least two devices, standin:", where.value_or(0), " and ", t.device(), "!");
        if (!where || t.dim()) where = t.device().index();
      } else if (t.dim()) strange = true;
      return t;
    });
  for (auto& arg : args) if (arg.isDevice() && !where) where = index_of(arg.toDevice());
  int device = where.value_or(device_now);
  TORCH_CHECK(!strange || !where || FROM_HOST.count(schema.name()), "Expected all tensors to be on the same device, but found at least two devices, standin:", device, " and cpu!");
  for (size_t k = 0; k < schema.returns().size(); k++) {
    writes_only &= is_written(schema, k, false);
    TORCH_CHECK(is_written(schema, k, false) || !schema.returns()[k].alias_info(), "standin has no kernel for the view ", schema.name());
  }
  bool asks = ASKS.count(schema.name());
  bool fails = false;
  { std::lock_guard g(state().lock); if (schema.name() == state().fail_at) { fails = true; state().fail_at.clear(); } }
  auto returned = [&](const std::vector<IValue>& made, const std::function<Tensor(const Tensor&)>& change) {
    for (size_t k = 0; k < made.size(); k++) {
      if (!is_written(schema, k, false)) { stack->push_back(each(made[k], change)); continue; }
      for (size_t j = 0; j < n; j++) {
        auto* own = schema.arguments()[j].alias_info();
        if (own && *own == *schema.returns()[k].alias_info()) { stack->push_back(args[j]); break; }
      }
    }
  };
  // What it gives is known from shapes alone: the values come later.
  bool known = !asks && !op.hasTag(at::Tag::nondeterministic_seeded) && !op.hasTag(at::Tag::dynamic_output_shape) && !op.hasTag(at::Tag::data_dependent_output);
  bool list = schema.name().rfind("aten::_foreach_", 0) == 0;
  std::vector<IValue> shapes;
  if (known && !(writes_only && list)) {
    auto given = changed(args, shape_of);
    try {
      shapes = called(op, given, c10::kMeta);
      for (size_t j = 0; j < n; j++) // an op may give `out` another size
        if (is_written(schema, j, true) && args[j].isTensor() && mine(args[j].toTensor()) && args[j].toTensor().sizes() != given[j].toTensor().sizes()) args[j].toTensor().resize_(given[j].toTensor().sizes());
    } catch (const c10::NotImplementedError&) { known = false; } catch (const py::error_already_set&) { known = false; }
  }
  if (known) {
    auto given = changed(args, seen);
    std::vector<IValue> made;
    if (writes_only && list) { for (auto& r : schema.returns()) { (void)r; made.push_back(IValue()); } } else made = shapes;
    std::vector<Tensor> targets;
    returned(made, [&](const Tensor& t) { auto found = room_for(t, device); targets.push_back(host(found)); return found; });
    launch(device, [op, given, targets, fails] {
      try {
        TORCH_CHECK_INDEX(!fails, "an error that a test asked for");
        auto made = called(op, given, c10::kCPU);
        std::vector<IValue> fresh;
        for (size_t k = 0; k < made.size(); k++) if (!is_written(op.schema(), k, false)) fresh.push_back(made[k]);
        auto values = flat(fresh);
        for (size_t k = 0; k < targets.size() && k < values.size(); k++) if (targets[k].numel()) targets[k].copy_(values[k]);
      } catch (const c10::Error& problem) { spoil(targets); failed(problem.what_without_backtrace()); }
    });
    count("asynchronous");
    return;
  }
  // Values are needed to know what it gives, or random numbers are drawn: it waits for its turn, and the program with it.
  allowed(schema.name().c_str());
  bool draws = op.hasTag(at::Tag::nondeterministic_seeded);
  for (size_t k = 0; k < n; k++) if (schema.arguments()[k].name() == "generator" && !args[k].isNone()) draws = false;
  std::vector<IValue> made, given = changed(args, seen);
  std::exception_ptr problem;
  auto& q = current(device);
  auto number = launch(device, [&] {
    auto& own = state().random[device];
    auto cpu = at::detail::getDefaultCPUGenerator(); // lends itself to the device's generator
    Tensor kept = cpu.get_state();
    if (draws && own.defined()) cpu.set_state(own);
    try { TORCH_CHECK_INDEX(!fails, "an error that a test asked for"); made = called(op, given, c10::kCPU); } catch (...) { problem = std::current_exception(); }
    if (draws) { own = cpu.get_state(); cpu.set_state(kept); }
  });
  reach(q, number);
  if (problem) {
    try { std::rethrow_exception(problem); } catch (const c10::IndexError& late) { // what a kernel would find out
      failed(late.what_without_backtrace());
      returned(called(op, changed(args, shape_of), c10::kMeta), [&](const Tensor& t) { auto found = room_for(t, device); spoil({host(found)}); return found; });
      return;
    }
  }
  for (size_t j = 0; j < n; j++)
    if (is_written(schema, j, true) && args[j].isTensor() && mine(args[j].toTensor()) && args[j].toTensor().sizes() != given[j].toTensor().sizes()) {
      args[j].toTensor().resize_(given[j].toTensor().sizes());
      reach(q, last(q));
      if (given[j].toTensor().numel()) host(args[j].toTensor()).copy_(given[j].toTensor());
    }
  returned(made, [&](const Tensor& t) { return up(t, device); });
  if (asks) { count("host_reads"); wait_for(q, number, "asking_ops"); }
}

// Convolutions have no kernel of this form on the CPU.
static Tensor conv(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b, c10::SymIntArrayRef stride, c10::SymIntArrayRef pad, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef out, c10::SymInt groups) {
  TORCH_CHECK(mine(x) && mine(w), "Expected all tensors to be on the same device, but found at least two devices, ", x.device(), " and ", w.device(), "!");
  auto bias = b && b->defined() ? std::optional<Tensor>(*b) : std::nullopt;
  auto shape = at::convolution_symint(shape_of(x), shape_of(w), bias ? std::optional<Tensor>(shape_of(*bias)) : std::nullopt, stride, pad, dilation, transposed, out, groups);
  auto found = room_for(shape, x.device().index());
  launch(x.device().index(), [x = host(x), w = host(w), bias = bias ? std::optional<Tensor>(host(*bias)) : std::nullopt, to = host(found), stride = stride.vec(), pad = pad.vec(), dilation = dilation.vec(), transposed, out = out.vec(), groups] {
    to.copy_(at::convolution_symint(x, w, bias, stride, pad, dilation, transposed, out, groups));
  });
  return found;
}
static std::tuple<Tensor, Tensor, Tensor> conv_backward(const Tensor& grad, const Tensor& x, const Tensor& w, c10::SymIntArrayRef stride, c10::SymIntArrayRef pad, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef out, c10::SymInt groups, std::array<bool, 3> mask) {
  int d = x.device().index();
  std::vector<c10::SymInt> bias{transposed ? w.sym_size(1) * groups : w.sym_size(0)};
  auto like = [&](bool wanted, c10::IntArrayRef size, const Tensor& t) { return wanted ? room_for(at::empty(size, t.options().device(c10::kMeta)), d) : Tensor(); };
  auto a = like(mask[0], x.sizes(), x), b = like(mask[1], w.sizes(), w), c = like(mask[2], C10_AS_INTARRAYREF_SLOW(c10::SymIntArrayRef(bias)), w);
  auto view = [](const Tensor& t) { return t.defined() ? host(t) : t; };
  launch(d, [grad = host(grad), x = host(x), w = host(w), bias, stride = stride.vec(), pad = pad.vec(), dilation = dilation.vec(), transposed, out = out.vec(), groups, mask, to = std::vector<Tensor>{view(a), view(b), view(c)}] {
    auto [x_, w_, b_] = at::convolution_backward_symint(grad, x, w, bias, stride, pad, dilation, transposed, out, groups, mask);
    if (mask[0]) to[0].copy_(x_);
    if (mask[1]) to[1].copy_(w_);
    if (mask[2]) to[2].copy_(b_);
  });
  return {a, b, c};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("resize_", resize_);
  m.impl("convolution_overrideable", conv);
  m.impl("convolution_backward_overrideable", conv_backward);
  m.impl("record_stream", [](Tensor& self, c10::Stream s) { alloc_.recordStream(self.storage().data_ptr(), s); });
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("set_.source_Storage", [](Tensor& result, c10::Storage source) -> Tensor& { int64_t n = source.nbytes() / result.dtype().itemsize(); return at::native::set_storage_cpu_(result, source, 0, {n}, {}); });
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) // one launch each, as on CUDA, and not one for each tensor
    if (name.name.rfind("aten::_foreach_", 0) == 0) {
      std::string full = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
      if (full.size() < 4 || full.find("_out") == std::string::npos) m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
    }
}
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) { // as CUDA does, for what the tests use
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
  KERNEL_PRIVATEUSEONE(mse_loss, fp32)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
}
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  void setCurrentDevice(c10::DeviceIndex d) const override { device_now = d; }
  c10::DeviceIndex getCurrentDevice() const override { return device_now; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override { auto was = device_now; device_now = d; return was; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override { return d < 0 ? device_now : exchangeDevice(d); }
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    On on(storage.device().index());
    auto p = alloc_.allocate(size);
    push(current(storage.device().index()), [to = p.get(), from = storage.data(), n = std::min(size, storage.nbytes())] { if (n) memcpy(to, from, n); }, false);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(p));
    storage.unsafeGetStorageImpl()->set_nbytes(size);
  }
};
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  m.def("counts", [] { std::lock_guard g(state().lock); return state().counts; });
  m.def("device_count", [] { return DEVICES; });
  m.def("current_device", [] { return device_now; });
  m.def("set_device", [](int d) { device_now = d; });
  m.def("synchronize", [](int d) { wait_for_all(d < 0 ? device_now : d, "device_waits"); });
  m.def("stop", &stop);
  m.def("capturing", [] { return bool(state().capturing); });
  m.def("begin_capture", [] { allowed("begin_capture"); std::lock_guard g(state().lock); state().captured.clear(); state().capturing = true; });
  m.def("end_capture", [] { // how often each launch is made again: by what this returns
    state().capturing = false;
    auto held = std::make_shared<std::vector<std::function<void()>>>(std::move(state().captured));
    return std::make_pair(int64_t(held->size()), py::cpp_function([held] { count("replays"); for (auto& task : *held) push(current(device_now), task); }));
  });
  m.def("seed", [](int64_t seed) { for (auto& own : state().random) { auto g = at::detail::createCPUGenerator(seed); own = g.get_state(); } });
  m.def("random_state", [](int d) { auto& own = state().random[d]; if (!own.defined()) own = at::detail::createCPUGenerator().get_state(); return own.clone(); });
  m.def("set_random_state", [](Tensor given, int d) { state().random[d] = given.clone(); });
  m.def("memory", [](int d) { auto& x = state().memory[d]; return std::make_tuple(x.used, x.peak, x.limit); });
  m.def("reset_peak", [](int d) { alloc_.resetPeakStats(d); });
  m.def("set_limit", [](int64_t bytes, int d) { state().memory[d].limit = bytes; });
  m.def("set_delay", [](double microseconds) { state().delay = microseconds; });
  m.def("hold", [](bool on) {
    std::vector<Queue*> found;
    state().hold = on;
    { std::lock_guard g(state().lock); for (auto& [key, q] : state().queues) found.push_back(q.get()); }
    for (auto* q : found) { { std::lock_guard l(q->lock); q->allowed = q->done; } q->moved.notify_all(); }
  });
  m.def("fail_at", [](std::string op, bool sticky) { state().fail_at = op; state().sticky = sticky; });
  m.def("set_sticky", [](bool sticky) { state().sticky = sticky; });
  m.def("on_wait", [](py::object listener) { state().listener = listener.is_none() ? nullptr : listener.release().ptr(); });
}
