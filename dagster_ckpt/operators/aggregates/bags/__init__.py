"""What is kept of all values of a group, or of all distinct ones.

Reading order

    bags             all values, with their number
    bag_functions    what is computed of these
    distinct         distinct values, exactly
"""
