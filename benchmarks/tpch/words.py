"""The values that columns of TPC-H's tables have, and which of them its queries ask for."""

REGIONS = {
    "AFRICA": ("ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"),
    "AMERICA": ("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"),
    "ASIA": ("CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"),
    "EUROPE": ("FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"),
    "MIDDLE EAST": ("EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"),
}
NATIONS = tuple(nation for nations in REGIONS.values() for nation in nations)
ASKED_NATIONS = ("BRAZIL", "CANADA", "FRANCE", "GERMANY", "INDIA", "SAUDI ARABIA")

SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")

BRANDS = tuple(f"Brand#{maker}{number}" for maker in range(1, 6) for number in range(1, 6))
ASKED_BRANDS = ("Brand#12", "Brand#23", "Brand#34", "Brand#45")
CONTAINERS = tuple(
    f"{size} {kind}"
    for size in ("JUMBO", "LG", "MED", "SM", "WRAP")
    for kind in ("BAG", "BOX", "CAN", "CASE", "DRUM", "JAR", "PACK", "PKG")
)
ASKED_CONTAINERS = ("LG BOX", "MED BOX", "SM BOX")
TYPES = tuple(
    f"{first} {second} {third}"
    for first in ("ECONOMY", "LARGE", "MEDIUM", "PROMO", "SMALL", "STANDARD")
    for second in ("ANODIZED", "BRUSHED", "BURNISHED", "PLATED", "POLISHED")
    for third in ("BRASS", "COPPER", "NICKEL", "STEEL", "TIN")
)
ASKED_TYPES = ("ECONOMY ANODIZED STEEL", "MEDIUM POLISHED TIN", "PROMO PLATED BRASS")
ASKED_SIZES = (3, 9, 14, 15, 49)
COLOURS = ("almond", "azure", "blue", "coral", "cream", "forest", "green", "ivory", "lemon", "olive", "plum", "tan")
ASKED_COLOURS = ("forest", "green")

WORDS = ("accounts", "asymptotes", "courts", "deposits", "foxes", "ideas", "packages", "pinto beans", "theodolites")
SPECIAL_REQUESTS = "special packages haggle requests"
COMPLAINTS = "Customer foxes Complaints"
