// bfloat16 or FP32 as a processor computes it: every product and every partial sum is an FP32
// number, normalized and rounded. Subnormal operands and results count as zero.

module dot_float_adders #(
    parameter LANES = 32,
    parameter MANTISSA = 7
) (
    input [LANES*(9+MANTISSA)-1:0] a,
    input [LANES*(9+MANTISSA)-1:0] b,
    output [31:0] result
);
  localparam CODE = 9 + MANTISSA;
  wire [LANES*32-1:0] products;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      multiply_fp32 #(.MANTISSA(MANTISSA)) multiply (
          .a(a[i*CODE+:CODE]),
          .b(b[i*CODE+:CODE]),
          .product(products[i*32+:32])
      );
    end
  endgenerate

  fp32_adder_tree #(.TERMS(LANES)) tree (
      .terms(products),
      .sum(result)
  );
endmodule

module fp32_adder_tree #(
    parameter TERMS = 32
) (
    input [TERMS*32-1:0] terms,
    output [31:0] sum
);
  localparam LEFT = TERMS / 2;
  localparam RIGHT = TERMS - LEFT;

  generate
    if (TERMS == 1) begin : leaf
      assign sum = terms;
    end else begin : node
      wire [31:0] left;
      wire [31:0] right;
      fp32_adder_tree #(.TERMS(LEFT)) left_half (
          .terms(terms[LEFT*32-1:0]),
          .sum(left)
      );
      fp32_adder_tree #(.TERMS(RIGHT)) right_half (
          .terms(terms[TERMS*32-1:LEFT*32]),
          .sum(right)
      );
      add_fp32 add (
          .a(left),
          .b(right),
          .sum(sum)
      );
    end
  endgenerate
endmodule

// Two numbers with FP32's exponent and MANTISSA fraction bits, multiplied to FP32.
module multiply_fp32 #(
    parameter MANTISSA = 7
) (
    input [8+MANTISSA:0] a,
    input [8+MANTISSA:0] b,
    output [31:0] product
);
  localparam WIDTH = 2 * MANTISSA + 2;
  wire [7:0] a_field = a[MANTISSA+:8];
  wire [7:0] b_field = b[MANTISSA+:8];
  wire zero = ~(|a_field) | ~(|b_field);
  wire [WIDTH-1:0] significand;

  multiply_unsigned #(.A(MANTISSA + 1), .B(MANTISSA + 1)) multiply (
      .a({1'b1, a[MANTISSA-1:0]}),
      .b({1'b1, b[MANTISSA-1:0]}),
      .product(significand)
  );

  // two significands in [1, 2) have a product in [1, 4): one bit decides the normalization
  wire carry = significand[WIDTH-1];
  wire [WIDTH-1:0] normalized = carry ? significand : significand << 1;
  wire signed [11:0] exponent = $signed({1'b0, a_field}) + $signed({1'b0, b_field})
      - 127 + $signed({1'b0, carry});

  round_fp32 #(.WIDTH(WIDTH)) round (
      .negative(a[8+MANTISSA] ^ b[8+MANTISSA]),
      .normalized(zero ? {WIDTH{1'b0}} : normalized),
      .exponent(exponent),
      .nan((&a_field) | (&b_field)),
      .fp32(product)
  );
endmodule

// The sum of two FP32 numbers, rounded to nearest, ties to even.
module add_fp32 (
    input [31:0] a,
    input [31:0] b,
    output [31:0] sum
);
  wire swap = b[30:0] > a[30:0];
  wire [31:0] larger = swap ? b : a;
  wire [31:0] smaller = swap ? a : b;
  wire larger_normal = |larger[30:23];
  wire smaller_normal = |smaller[30:23];
  wire [23:0] larger_significand = {larger_normal, larger[22:0] & {23{larger_normal}}};
  wire [23:0] smaller_significand = {smaller_normal, smaller[22:0] & {23{smaller_normal}}};

  // guard, round and sticky bits are enough to round the exact sum
  wire [26:0] aligned;
  shift_right_sticky align (
      .value({smaller_significand, 3'd0}),
      .distance(larger[30:23] - smaller[30:23]),
      .shifted(aligned)
  );

  wire subtract = larger[31] ^ smaller[31];
  wire [27:0] total = subtract ? {1'b0, larger_significand, 3'd0} - aligned
      : {1'b0, larger_significand, 3'd0} + aligned;
  wire [27:0] normalized;
  wire [4:0] leading_zeros;

  normalize #(.WIDTH(28)) shift (
      .value(total),
      .normalized(normalized),
      .leading_zeros(leading_zeros)
  );

  wire signed [11:0] exponent = $signed({1'b0, larger[30:23]}) + 1 - $signed({1'b0, leading_zeros});

  round_fp32 #(.WIDTH(28)) round (
      .negative(larger[31]),
      .normalized(normalized),
      .exponent(exponent),
      .nan((&a[30:23]) | (&b[30:23])),
      .fp32(sum)
  );
endmodule

// A right shift whose last bit remembers whether anything but zeros was shifted out.
module shift_right_sticky (
    input [26:0] value,
    input [7:0] distance,
    output [26:0] shifted
);
  reg [26:0] kept;
  reg sticky;
  integer step;

  always @* begin
    kept = value;
    sticky = 1'b0;
    for (step = 4; step >= 0; step = step - 1) begin
      if (distance[step]) begin
        sticky = sticky | (|(kept & ((27'd1 << (1 << step)) - 27'd1)));
        kept = kept >> (1 << step);
      end
    end
    if (|distance[7:5]) begin
      sticky = |value;
      kept = 27'd0;
    end
  end

  assign shifted = {kept[26:1], kept[0] | sticky};
endmodule
