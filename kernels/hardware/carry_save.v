// Sums of many numbers. A row of full adders makes two rows of bits of three, and no carry travels along
// it; only the last two rows are added by an adder in which carries do.

module three_to_two #(
    parameter WIDTH = 16
) (
    input [WIDTH-1:0] a,
    input [WIDTH-1:0] b,
    input [WIDTH-1:0] c,
    output [WIDTH-1:0] sum,
    output [WIDTH-1:0] carry
);
`ifdef SYNTHESIS
  wire [WIDTH:0] carries;
  assign carries[0] = 1'b0;
  assign carry = carries[WIDTH-1:0];

  genvar i;
  generate
    for (i = 0; i < WIDTH; i = i + 1) begin : column
      full_adder add (
          .a(a[i]),
          .b(b[i]),
          .c(c[i]),
          .carry(carries[i+1]),
          .sum(sum[i])
      );
    end
  endgenerate
`else  // the same, for a simulator to do a row at a time
  assign sum = a ^ b ^ c;
  assign carry = ((a & b) | (c & (a | b))) << 1;
`endif
endmodule

// TERMS rows, modulo 2^WIDTH, as two: a tree whose every level takes all rows by threes.
module carry_save #(
    parameter TERMS = 32,
    parameter WIDTH = 21
) (
    input [TERMS*WIDTH-1:0] terms,
    output [WIDTH-1:0] sum,
    output [WIDTH-1:0] carry
);
  localparam GROUPS = TERMS / 3;
  localparam REST = TERMS - 3 * GROUPS;
  localparam NEXT = 2 * GROUPS + REST;

  genvar i;
  generate
    if (TERMS == 1) begin : one
      assign sum = terms;
      assign carry = {WIDTH{1'b0}};
    end else if (TERMS == 2) begin : two
      assign {carry, sum} = terms;
    end else begin : more
      // [carry_save]
      wire [NEXT*WIDTH-1:0] rows;
      for (i = 0; i < GROUPS; i = i + 1) begin : group
        three_to_two #(.WIDTH(WIDTH)) add (
            .a(terms[3*i*WIDTH+:WIDTH]),
            .b(terms[(3*i+1)*WIDTH+:WIDTH]),
            .c(terms[(3*i+2)*WIDTH+:WIDTH]),
            .sum(rows[i*WIDTH+:WIDTH]),
            .carry(rows[(GROUPS+i)*WIDTH+:WIDTH])
        );
      end
      for (i = 0; i < REST; i = i + 1) begin : rest
        assign rows[(2*GROUPS+i)*WIDTH+:WIDTH] = terms[(3*GROUPS+i)*WIDTH+:WIDTH];
      end
      carry_save #(.TERMS(NEXT), .WIDTH(WIDTH)) next (
          .terms(rows),
          .sum(sum),
          .carry(carry)
      );
      // [/carry_save]
    end
  endgenerate
endmodule

// The sum modulo 2^OUT of TERMS unsigned numbers of WIDTH bits, of as many of HIGH bits that count
// 2^PLACE each, and of EXTRA rows of OUT bits.
module sum_rows #(
    parameter TERMS = 32,
    parameter WIDTH = 15,
    parameter HIGH = 8,
    parameter PLACE = 7,
    parameter EXTRA = 1,
    parameter OUT = 21
) (
    input [TERMS*WIDTH-1:0] low,
    input [TERMS*HIGH-1:0] high,
    input [EXTRA*OUT-1:0] extra,
    output [OUT-1:0] total
);
  wire [2*TERMS*OUT-1:0] terms;
  wire [OUT-1:0] sum, carry;

  genvar i;
  generate
    for (i = 0; i < TERMS; i = i + 1) begin : term
      wire [OUT-1:0] upper = high[i*HIGH+:HIGH];
      assign terms[i*OUT+:OUT] = low[i*WIDTH+:WIDTH];
      assign terms[(TERMS+i)*OUT+:OUT] = upper << PLACE;
    end
  endgenerate

  carry_save #(.TERMS(2 * TERMS + EXTRA), .WIDTH(OUT)) tree (
      .terms({extra, terms}),
      .sum(sum),
      .carry(carry)
  );
  assign total = sum + carry;
endmodule

// Signed products, each as multiply_signed leaves it, and where ADDS says so one number more.
(* keep_hierarchy *)
module sum_products #(
    parameter LANES = 32,
    parameter WIDTH = 8,
    parameter ADDS = 0,
    parameter OUT = 21
) (
    input [LANES*(2*WIDTH-1)-1:0] sums,
    input [LANES*WIDTH-1:0] carries,
    input [OUT-1:0] addend,
    output [OUT-1:0] total
);
  localparam [OUT-1:0] ONE = 1;
  localparam [OUT-1:0] TOO_LARGE = LANES * ((ONE << (2 * WIDTH - 1)) - (ONE << WIDTH));
  wire [OUT-1:0] added = ADDS ? addend : {OUT{1'b0}};

  sum_rows #(
      .TERMS(LANES),
      .WIDTH(2 * WIDTH - 1),
      .HIGH(WIDTH),
      .PLACE(WIDTH - 1),
      .EXTRA(2),
      .OUT(OUT)
  ) rows (
      .low(sums),
      .high(carries),
      .extra({added, -TOO_LARGE}),
      .total(total)
  );
endmodule

// Numbers with a sign beside them, of which the sign has already inverted every bit. An inverted number
// is what all ones would be, less the number: the signs are counted, and their count mends all
// at once. PAIRS says that a number is two rows, as multiply_rows leaves it, or else one.
(* keep_hierarchy *)
module sum_magnitudes #(
    parameter TERMS = 32,
    parameter WIDTH = 16,
    parameter PAIRS = 0,
    parameter HIGH = 1,
    parameter OUT = WIDTH + PAIRS + 1 + $clog2(TERMS)
) (
    input [TERMS*WIDTH-1:0] low,
    input [TERMS*HIGH-1:0] high,
    input [TERMS-1:0] negative,
    output [OUT-1:0] total
);
  localparam COUNT = $clog2(TERMS + 1);
  localparam PLACE = WIDTH - HIGH;
  localparam ALL = WIDTH + PAIRS;  // all ones are 2^ALL - 1, of pairs less 2^PLACE
  localparam [OUT-1:0] TWO = 2;
  wire [TERMS*COUNT-1:0] signs;
  wire [COUNT-1:0] sum, carry;

  genvar i;
  generate
    for (i = 0; i < TERMS; i = i + 1) begin : sign
      assign signs[i*COUNT+:COUNT] = negative[i];
    end
  endgenerate

  carry_save #(.TERMS(TERMS), .WIDTH(COUNT)) count (
      .terms(signs),
      .sum(sum),
      .carry(carry)
  );
  wire [OUT-1:0] wide_sum = sum;
  wire [OUT-1:0] wide_carry = carry;
  wire [2*OUT-1:0] middle = PAIRS ? {wide_sum << PLACE, wide_carry << PLACE} : {2 * OUT{1'b0}};

  sum_rows #(
      .TERMS(TERMS),
      .WIDTH(WIDTH),
      .HIGH(HIGH),
      .PLACE(PLACE),
      .EXTRA(7),
      .OUT(OUT)
  ) rows (
      .low(low),
      .high(PAIRS ? high : {TERMS * HIGH{1'b0}}),
      .extra({middle, wide_sum, wide_carry, ~wide_sum << ALL, ~wide_carry << ALL, TWO << ALL}),
      .total(total)
  );
endmodule

// Signed terms of WIDTH bits.
(* keep_hierarchy *)
module sum_signed #(
    parameter TERMS = 4,
    parameter WIDTH = 21,
    parameter OUT = WIDTH + $clog2(TERMS)
) (
    input [TERMS*WIDTH-1:0] terms,
    output [OUT-1:0] total
);
  localparam [OUT-1:0] TOO_LARGE = TERMS << (WIDTH - 1);
  wire [TERMS*WIDTH-1:0] moved;

  genvar i;
  generate
    for (i = 0; i < TERMS; i = i + 1) begin : term
      assign moved[i*WIDTH+:WIDTH] = {~terms[i*WIDTH+WIDTH-1], terms[i*WIDTH+:WIDTH-1]};
    end
  endgenerate

  sum_rows #(.TERMS(TERMS), .WIDTH(WIDTH), .HIGH(1), .PLACE(0), .EXTRA(1), .OUT(OUT)) rows (
      .low(moved),
      .high({TERMS{1'b0}}),
      .extra(-TOO_LARGE),
      .total(total)
  );
endmodule
