// Vectors of INVERTBENCH_BYTES bytes, and the few operations on them that a compiler does not find by itself.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard. A vector is made of 16-byte
// lanes, within which shuffles are cheap: 4 floats or 2 doubles each.

// Keep a vector in its register: a compiler would otherwise reload it for every use, and loads are the bottleneck.
#undef INVERTBENCH_KEEP
#if INVERTBENCH_BYTES == 64
#define INVERTBENCH_KEEP(v) asm("" : "+v"(v))
#elif defined(__x86_64__)
#define INVERTBENCH_KEEP(v) asm("" : "+x"(v))
#else
#define INVERTBENCH_KEEP(v) (void)(v)
#endif

#if defined(__clang__)
#define INVERTBENCH_SHUFFLE(I, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define INVERTBENCH_SHUFFLE(I, a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})
#endif

template <class T>
struct Simd;

#if INVERTBENCH_BYTES == 64

// Only here: `pick` takes entries of two vectors by number, those of b after those of a, from aligned places;
// `store_quarters` stores the first 2 to 4 quarters of a vector.
template <>
struct Simd<float> {
  using V = __m512;
  static INVERTBENCH_INLINE V splat(float x) { return _mm512_set1_ps(x); }
  static INVERTBENCH_INLINE V low(V a, V b) { return _mm512_unpacklo_ps(a, b); }
  static INVERTBENCH_INLINE V high(V a, V b) { return _mm512_unpackhi_ps(a, b); }
  static INVERTBENCH_INLINE V low2(V a, V b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static INVERTBENCH_INLINE V high2(V a, V b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  template <int I>
  static INVERTBENCH_INLINE V lanes(V a, V b) {
    return _mm512_shuffle_f32x4(a, b, I);
  }
  static INVERTBENCH_INLINE V join(const float* const* x, int64_t at) {
    V v = _mm512_castps128_ps512(_mm_loadu_ps(x[0] + at));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(x[4] + at), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(x[8] + at), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(x[12] + at), 3);
  }
  static INVERTBENCH_INLINE void split(V v, float* const* x, int64_t at) {
    _mm_storeu_ps(x[0] + at, _mm512_castps512_ps128(v));
    _mm_storeu_ps(x[4] + at, _mm512_extractf32x4_ps(v, 1));
    _mm_storeu_ps(x[8] + at, _mm512_extractf32x4_ps(v, 2));
    _mm_storeu_ps(x[12] + at, _mm512_extractf32x4_ps(v, 3));
  }
  using Place = int32_t;
  static INVERTBENCH_INLINE V pick(V a, V b, const Place* places) {
    return _mm512_permutex2var_ps(a, _mm512_load_si512(places), b);
  }
  static INVERTBENCH_INLINE void store_quarters(V v, int quarters, float* to) {
    if (quarters == 4) return _mm512_storeu_ps(to, v);
    _mm256_storeu_ps(to, _mm512_castps512_ps256(v));
    if (quarters == 3) _mm_storeu_ps(to + 8, _mm512_extractf32x4_ps(v, 2));
  }
};

template <>
struct Simd<double> {
  using V = __m512d;
  static INVERTBENCH_INLINE V splat(double x) { return _mm512_set1_pd(x); }
  static INVERTBENCH_INLINE V low(V a, V b) { return _mm512_unpacklo_pd(a, b); }
  static INVERTBENCH_INLINE V high(V a, V b) { return _mm512_unpackhi_pd(a, b); }
  template <int I>
  static INVERTBENCH_INLINE V lanes(V a, V b) {
    return _mm512_shuffle_f64x2(a, b, I);
  }
  static INVERTBENCH_INLINE V join(const double* const* x, int64_t at) {
    V v = _mm512_castpd128_pd512(_mm_loadu_pd(x[0] + at));
    v = _mm512_insertf64x2(v, _mm_loadu_pd(x[2] + at), 1);
    v = _mm512_insertf64x2(v, _mm_loadu_pd(x[4] + at), 2);
    return _mm512_insertf64x2(v, _mm_loadu_pd(x[6] + at), 3);
  }
  static INVERTBENCH_INLINE void split(V v, double* const* x, int64_t at) {
    _mm_storeu_pd(x[0] + at, _mm512_castpd512_pd128(v));
    _mm_storeu_pd(x[2] + at, _mm512_extractf64x2_pd(v, 1));
    _mm_storeu_pd(x[4] + at, _mm512_extractf64x2_pd(v, 2));
    _mm_storeu_pd(x[6] + at, _mm512_extractf64x2_pd(v, 3));
  }
  using Place = int64_t;
  static INVERTBENCH_INLINE V pick(V a, V b, const Place* places) {
    return _mm512_permutex2var_pd(a, _mm512_load_si512(places), b);
  }
  static INVERTBENCH_INLINE void store_quarters(V v, int quarters, double* to) {
    if (quarters == 4) return _mm512_storeu_pd(to, v);
    _mm256_storeu_pd(to, _mm512_castpd512_pd256(v));
    if (quarters == 3) _mm_storeu_pd(to + 4, _mm512_extractf64x2_pd(v, 2));
  }
};

#elif INVERTBENCH_BYTES == 32

template <>
struct Simd<float> {
  using V = __m256;
  static INVERTBENCH_INLINE V splat(float x) { return _mm256_set1_ps(x); }
  static INVERTBENCH_INLINE V low(V a, V b) { return _mm256_unpacklo_ps(a, b); }
  static INVERTBENCH_INLINE V high(V a, V b) { return _mm256_unpackhi_ps(a, b); }
  static INVERTBENCH_INLINE V low2(V a, V b) {
    return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
  }
  static INVERTBENCH_INLINE V high2(V a, V b) {
    return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
  }
  template <int I>
  static INVERTBENCH_INLINE V lanes(V a, V b) {
    return _mm256_permute2f128_ps(a, b, I);
  }
  static INVERTBENCH_INLINE V join(const float* const* x, int64_t at) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x[0] + at)), _mm_loadu_ps(x[4] + at), 1);
  }
  static INVERTBENCH_INLINE void split(V v, float* const* x, int64_t at) {
    _mm_storeu_ps(x[0] + at, _mm256_castps256_ps128(v));
    _mm_storeu_ps(x[4] + at, _mm256_extractf128_ps(v, 1));
  }
};

template <>
struct Simd<double> {
  using V = __m256d;
  static INVERTBENCH_INLINE V splat(double x) { return _mm256_set1_pd(x); }
  static INVERTBENCH_INLINE V low(V a, V b) { return _mm256_unpacklo_pd(a, b); }
  static INVERTBENCH_INLINE V high(V a, V b) { return _mm256_unpackhi_pd(a, b); }
  template <int I>
  static INVERTBENCH_INLINE V lanes(V a, V b) {
    return _mm256_permute2f128_pd(a, b, I);
  }
  static INVERTBENCH_INLINE V join(const double* const* x, int64_t at) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(x[0] + at)), _mm_loadu_pd(x[2] + at), 1);
  }
  static INVERTBENCH_INLINE void split(V v, double* const* x, int64_t at) {
    _mm_storeu_pd(x[0] + at, _mm256_castpd256_pd128(v));
    _mm_storeu_pd(x[2] + at, _mm256_extractf128_pd(v, 1));
  }
};

#else  // 16 bytes: available on every processor

template <>
struct Simd<float> {
  typedef float V __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  static INVERTBENCH_INLINE V splat(float x) { return V{x, x, x, x}; }
  static INVERTBENCH_INLINE V low(V a, V b) { return INVERTBENCH_SHUFFLE(I, a, b, 0, 4, 1, 5); }
  static INVERTBENCH_INLINE V high(V a, V b) { return INVERTBENCH_SHUFFLE(I, a, b, 2, 6, 3, 7); }
  static INVERTBENCH_INLINE V low2(V a, V b) { return INVERTBENCH_SHUFFLE(I, a, b, 0, 1, 4, 5); }
  static INVERTBENCH_INLINE V high2(V a, V b) { return INVERTBENCH_SHUFFLE(I, a, b, 2, 3, 6, 7); }
  static INVERTBENCH_INLINE V join(const float* const* x, int64_t at) {
    V v;
    std::memcpy(&v, x[0] + at, sizeof v);
    return v;
  }
  static INVERTBENCH_INLINE void split(V v, float* const* x, int64_t at) { std::memcpy(x[0] + at, &v, sizeof v); }
};

template <>
struct Simd<double> {
  typedef double V __attribute__((vector_size(16)));
  typedef int64_t I __attribute__((vector_size(16)));
  static INVERTBENCH_INLINE V splat(double x) { return V{x, x}; }
  static INVERTBENCH_INLINE V low(V a, V b) { return INVERTBENCH_SHUFFLE(I, a, b, 0, 2); }
  static INVERTBENCH_INLINE V high(V a, V b) { return INVERTBENCH_SHUFFLE(I, a, b, 1, 3); }
  static INVERTBENCH_INLINE V join(const double* const* x, int64_t at) {
    V v;
    std::memcpy(&v, x[0] + at, sizeof v);
    return v;
  }
  static INVERTBENCH_INLINE void split(V v, double* const* x, int64_t at) { std::memcpy(x[0] + at, &v, sizeof v); }
};

#endif

template <class T>
using V = typename Simd<T>::V;

template <class T>
constexpr int LANES = INVERTBENCH_BYTES / int(sizeof(T));

template <class T>
INVERTBENCH_INLINE V<T> load(const T* from) {
  V<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class T>
INVERTBENCH_INLINE void store(T* to, V<T> v) {
  std::memcpy(to, &v, sizeof v);
}

// Entries N of two vectors, those of b after those of a.
template <class T, int... N>
INVERTBENCH_INLINE V<T> shuffle(V<T> a, V<T> b) {
  typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> I __attribute__((vector_size(INVERTBENCH_BYTES)));
  return INVERTBENCH_SHUFFLE(I, a, b, N...);
}

#undef INVERTBENCH_SHUFFLE

// Numbers in a 16-byte lane.
template <class T>
constexpr int PIECE = 16 / int(sizeof(T));

// Within every lane, PIECE vectors as the rows of a square matrix become its columns.
INVERTBENCH_INLINE void transpose_pieces(V<float>* v) {
  using S = Simd<float>;
  const V<float> a = S::low(v[0], v[1]), b = S::high(v[0], v[1]), c = S::low(v[2], v[3]), d = S::high(v[2], v[3]);
  v[0] = S::low2(a, c);
  v[1] = S::high2(a, c);
  v[2] = S::low2(b, d);
  v[3] = S::high2(b, d);
}

INVERTBENCH_INLINE void transpose_pieces(V<double>* v) {
  using S = Simd<double>;
  const V<double> a = S::low(v[0], v[1]), b = S::high(v[0], v[1]);
  v[0] = a;
  v[1] = b;
}

// Whole 16-byte lanes of the vectors v[0], v[step], ..., one for each lane, as the rows of a square matrix become its
// columns.
template <class T>
INVERTBENCH_INLINE void transpose_lanes([[maybe_unused]] V<T>* v, [[maybe_unused]] int step) {
#if INVERTBENCH_BYTES == 64
  const V<T> a = Simd<T>::template lanes<0x44>(v[0], v[step]), b = Simd<T>::template lanes<0xee>(v[0], v[step]);
  const V<T> c = Simd<T>::template lanes<0x44>(v[2 * step], v[3 * step]);
  const V<T> d = Simd<T>::template lanes<0xee>(v[2 * step], v[3 * step]);
  v[0] = Simd<T>::template lanes<0x88>(a, c);
  v[step] = Simd<T>::template lanes<0xdd>(a, c);
  v[2 * step] = Simd<T>::template lanes<0x88>(b, d);
  v[3 * step] = Simd<T>::template lanes<0xdd>(b, d);
#elif INVERTBENCH_BYTES == 32
  const V<T> a = Simd<T>::template lanes<0x20>(v[0], v[step]), b = Simd<T>::template lanes<0x31>(v[0], v[step]);
  v[0] = a;
  v[step] = b;
#endif
}

// As many vectors as numbers in each: the rows of a square matrix become its columns.
template <class T>
INVERTBENCH_INLINE void transpose(V<T>* v) {
  constexpr int L = LANES<T>, P = PIECE<T>;
#pragma GCC unroll 4
  for (int i = 0; i < L; i += P) transpose_pieces(v + i);
#pragma GCC unroll 4
  for (int i = 0; i < P; ++i) transpose_lanes<T>(v + i, P);
}

// The sums over all lanes and entries of four vectors, side by side, added to four doubles.
INVERTBENCH_INLINE void add_sums(const V<float>* v, double* sums) {
  using S = Simd<float>;
  const V<float> a = S::low(v[0], v[1]) + S::high(v[0], v[1]), b = S::low(v[2], v[3]) + S::high(v[2], v[3]);
  const V<float> each = S::low2(a, b) + S::high2(a, b);
#if INVERTBENCH_BYTES == 64
  const __m256 half = _mm512_castps512_ps256(each) + _mm512_extractf32x8_ps(each, 1);
  const __m128 total = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
  _mm256_storeu_pd(sums, _mm256_loadu_pd(sums) + _mm256_cvtps_pd(total));
#elif INVERTBENCH_BYTES == 32
  const __m128 total = _mm256_castps256_ps128(each) + _mm256_extractf128_ps(each, 1);
  _mm256_storeu_pd(sums, _mm256_loadu_pd(sums) + _mm256_cvtps_pd(total));
#else
  for (int i = 0; i < 4; ++i) sums[i] += each[i];
#endif
}

INVERTBENCH_INLINE void add_sums(const V<double>* v, double* sums) {
  using S = Simd<double>;
  for (int i = 0; i < 4; i += 2) {
    const V<double> each = S::low(v[i], v[i + 1]) + S::high(v[i], v[i + 1]);
    for (int j = 0; j < LANES<double>; j += 2) {
      sums[i] += each[j];
      sums[i + 1] += each[j + 1];
    }
  }
}
