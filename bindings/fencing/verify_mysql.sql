SELECT token FROM snib_fence WHERE name = :name AND token = :token AND owner = :owner FOR UPDATE
